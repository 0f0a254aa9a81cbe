"""Journeys of a new user: what to type, and what is on the screen, word by word.

Each transcript is in `screens`. `screen.py` says how to record them again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from tools.kube.cluster import parts_for
from tools.kube.gobuild import missing
from tools.waiting import until

from hekla.kube.resources import NODES, SERVICE_ACCOUNTS
from tests.cli.wheels import requirements
from tests.journeys.screen import Screen
from tests.realkube.backends import real

FAILING = """\
weights = {"layer1": 3}
print("loading weights")
print(weights["layer2"])
"""
LATER = """\
import pathlib, time
print("waiting for the data")
while not pathlib.Path("data").exists():
    time.sleep(0.1)
print("got it")
"""


MOVED = """\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: hello}
spec:
  minAvailable: 2
  tasks:
  - name: worker
    replicas: 2
    template:
      metadata: {annotations: {hekla.test/finish: Succeeded}}
      spec:
        restartPolicy: Never
        containers:
        - name: main
          image: busybox
          command: [sleep, "0.1"]
          resources: {requests: {cpu: 100m}}
"""
OWNER = "--pod-user owner"  # as for an ordinary user; others do not see a checkout below /tmp
RECLAIM = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: volcano-scheduler-configmap, namespace: volcano-system}
data:
  volcano-scheduler.conf: |
    actions: "enqueue, allocate, reclaim, backfill"
    tiers:
    - plugins:
      - name: priority
      - name: gang
      - name: conformance
    - plugins:
      - name: drf
        enablePreemptable: false
      - name: predicates
      - name: proportion
      - name: nodeorder
"""


def team_job(name: str, queue: str, *, replicas: int, gang: int) -> str:
    return f"""\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: {name}}}
spec:
  queue: {queue}
  minAvailable: {gang}
  tasks:
  - name: worker
    replicas: {replicas}
    template:
      metadata: {{annotations: {{hekla.io/simulated-seconds: "600"}}}}
      spec:
        containers:
        - name: main
          image: host
          command: [python, train.py]
          resources: {{requests: {{cpu: 8}}}}
"""


def said(screen: Screen, command: str, *texts: str, shown: Sequence[str] = ()) -> None:
    """Run a command until its output has some texts; show all lines, or those with a word."""
    found: list[str] = []

    def has_texts() -> bool:
        found[:] = [screen.run(command, shown=False)]
        return all(text in found[0] for text in texts)

    until(has_texts, f"{command} does not say {texts}")
    lines = found[0].splitlines(keepends=True)
    if shown:
        lines = [line for line in lines if any(word in line for word in shown)]
        command += " | grep -e " + " -e ".join(f"'{word}'" for word in shown)
    screen.show(command, "".join(lines))


def up(screen: Screen, flags: str = OWNER) -> None:
    # Another cluster of this machine may have the default port.
    screen.run(f"hekla up -d --port 0 {flags}", shown=False)


def test_a_failing_script_shows_its_output_its_exit_code_and_what_tells_more(
    screen: Screen,
) -> None:
    up(screen)
    screen.write("train.py", FAILING)
    screen.run("hekla run --name train -- python train.py", code=1)
    screen.run("hekla explain train")
    screen.run("hekla job logs train")
    screen.run("hekla logs train-worker-0 | tail -n 1")
    screen.write("train.py", FAILING.replace("layer2", "layer1"))
    screen.run("hekla job retry train")
    screen.run("hekla job wait train-retry-1")
    screen.matches("failing-script")


@pytest.mark.skipif(os.geteuid() != 0, reason="not root: pods run as this user")
def test_a_program_in_a_private_directory_is_refused_with_what_helps(screen: Screen) -> None:
    up(screen, "--pod-user namespace")
    screen.environ["PATH"] = f"{screen.home}/private/bin:{screen.environ['PATH']}"
    screen.write("private/bin/trainer", "#!/bin/sh\necho trained on $1\n")
    screen.run("chmod +x private/bin/trainer; chmod go= private")
    screen.run("hekla run -- trainer day-1", code=1)
    screen.run("hekla run -- ./trainer day-1", code=1)
    screen.run("hekla run -- trainre day-1", code=1)
    screen.run("hekla run --array 1-0 -- trainer", code=2)
    screen.note("this machine is hers alone")
    screen.run("hekla down && hekla up -d --pod-user owner", shown=False)
    screen.type("hekla down && hekla up -d --pod-user owner")
    screen.run("hekla run --name train -- trainer day-1")
    screen.matches("private-program")


def test_an_unknown_image_says_what_to_add_and_the_job_goes_on_when_it_is_added(
    screen: Screen,
) -> None:
    up(screen)
    run = screen.start("hekla run --name train -i pytorch/pytorch:2.4 -- python -c 'print(6 * 7)'")
    run.until("ImageNotMapped")
    images = '[images]\n"pytorch/pytorch:2.4" = { host = true }\n'
    screen.note("while it waits, in another terminal:")
    screen.write(".config/hekla/images.toml", images)
    run.ends()
    screen.matches("unknown-image")


def test_a_gpu_on_a_machine_without_gpus_is_named_at_once(screen: Screen) -> None:
    up(screen)
    run = screen.start("hekla run --name train --gpu 1 -- python train.py")
    run.until("is pending")
    screen.note("Ctrl-C")
    run.interrupt(code=130)
    screen.run("hekla job list")
    screen.matches("missing-gpu")


def test_a_typo_is_refused_with_the_name_that_was_meant(screen: Screen) -> None:
    up(screen)
    job = Path(__file__).parent.joinpath("typo.yaml").read_text()
    screen.write("job.yaml", job)
    screen.run("hekla run job.yaml", code=1)
    screen.write("job.yaml", job.replace("replcias", "replicas").replace("contaners", "containers"))
    screen.run("hekla run job.yaml")
    screen.matches("typo")


def test_two_teams_get_their_shares_and_read_who_took_what(screen: Screen) -> None:
    up(screen, "--no-agent --simulated-nodes 2")
    screen.run("hekla queue create -n research -w 1")
    screen.run("hekla queue create -n product -w 1")
    screen.write("sweep.yaml", team_job("sweep", "research", replicas=8, gang=1))
    screen.write("train.yaml", team_job("train", "product", replicas=4, gang=4))
    screen.run("hekla job run -f sweep.yaml")
    screen.run("hekla job wait sweep --for Running")
    screen.run("hekla job run -f train.yaml")
    said(screen, "hekla explain train", "what helps")
    screen.write("scheduler.yaml", RECLAIM)
    screen.run("hekla config check scheduler.yaml")
    screen.run("hekla run scheduler.yaml")
    screen.run("hekla job wait train --for Running")
    said(screen, "hekla explain train", "evicts 4 pods", shown=["job default", "Preempting"])
    said(screen, "hekla explain sweep", "evicted 4 pods", shown=["job default", "Evict"])
    runs = [f"{queue}weight 1, 1 running\n" for queue in ("product    ", "research   ")]
    said(screen, "hekla queue top", "64 used, 64 in the cluster\n├─ default", *runs)
    screen.matches("two-teams")


def test_a_reboot_in_the_middle_starts_the_job_again(screen: Screen) -> None:
    up(screen)
    screen.write("train.py", LATER)
    run = screen.start("hekla run --name train -- python train.py")
    run.until("waiting for the data")
    screen.note("the machine goes down, and comes up again")
    screen.run("hekla down")
    run.until("does not answer")
    # On the port of the first start.
    screen.show("hekla up -d", screen.run(f"hekla up -d {OWNER}", shown=False))
    run.until("answers again")
    screen.run("echo 1 > data")
    run.ends()
    screen.matches("reboot")


def test_own_packages_are_installed_once(screen: Screen) -> None:
    up(screen)
    # The package is a file here, so that the test needs no index.
    requirements(screen.home, "greeting==2.0")
    screen.write("train.py", "import greeting\nprint('greeting', greeting.version)\n")
    run = "hekla run --name {} --requirements requirements.txt -- python train.py"
    first = screen.run(run.format("first"))
    key = re.search(r"building environment ([0-9a-f]+)", first)
    assert key
    screen.name(key[1], "6a27b1a5c7d20e41")
    screen.run(run.format("second"))
    screen.write("typo.txt", f"--no-index\n--find-links {screen.home / 'links'}\ngreetings\n")
    failed = screen.run(run.format("third").replace("requirements.txt", "typo.txt"), code=1)
    key = re.search(r"building environment ([0-9a-f]+)", failed)
    assert key
    screen.name(key[1], "9c01e7b3a4f8d652")
    screen.matches("own-packages")


def test_colleague_runs_a_job_and_sees_no_more_than_allowed(screen: Screen) -> None:
    up(screen, "--multi-user")
    screen.run("hekla queue create -n team -w 1")
    screen.run("hekla user add bob --queue team > bob.kubeconfig")
    screen.note("Bob, with that file:")
    screen.environ["KUBECONFIG"] = "bob.kubeconfig"
    command = "sh -c 'echo I am $(whoami) in $(hostname)'"
    screen.run(f"hekla run --name hello --workdir / -- {command}", code=1)
    screen.run(f"hekla run --name hello --workdir / --queue team -- {command}")
    screen.run("hekla history")
    screen.run("hekla job list -n default", code=255)
    screen.note("Ada, who runs the machine:")
    del screen.environ["KUBECONFIG"]
    said(screen, "hekla usage -A --by user | cut -d' ' -f1", "bob")
    screen.run("hekla user remove bob")
    screen.note("Bob again:")
    screen.environ["KUBECONFIG"] = "bob.kubeconfig"
    screen.run("hekla job list", code=255)
    screen.matches("colleague")


def test_the_same_manifest_and_command_run_on_kubernetes(screen: Screen, tmp_path: Path) -> None:
    if reason := missing(parts_for(controllers=True)):
        pytest.skip(reason)
    up(screen)
    screen.write("job.yaml", MOVED)
    screen.run("hekla run job.yaml")
    with real(tmp_path / "kubernetes") as backend, backend.client() as client:
        # New nodes are tainted until Kubernetes' controllers have seen them ready.
        until(lambda: not any(node["spec"].get("taints") for node in client.list(NODES)))
        until(lambda: client.find(SERVICE_ACCOUNTS, "default", namespace="default"))
        screen.name(str(backend.kubeconfig), "/home/ada/.kube/config")
        screen.environ["KUBECONFIG"] = str(backend.kubeconfig)
        screen.note("export KUBECONFIG=/home/ada/.kube/config")
        screen.run("hekla run job.yaml")
        screen.run("hekla job list")
        screen.run("hekla run -- python train.py", code=2)
    screen.matches("kubernetes")

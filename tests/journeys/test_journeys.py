"""Journeys of a new user: what to type, and what is on the screen, word by word.

Each transcript is in `screens`. `screen.py` says how to record them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tools.waiting import until

from tests.journeys.screen import Screen

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


def said(screen: Screen, command: str, text: str, *, shown: Sequence[str] = ()) -> None:
    """Run a command until its output has a text; show all lines of it, or those with a word."""
    found: list[str] = []

    def has_text() -> bool:
        found[:] = [screen.run(command, shown=False)]
        return text in found[0]

    until(has_text, f"{command} does not say {text!r}")
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
    screen.write("train.py", FAILING.replace("layer2", "layer1"))
    screen.run("hekla job retry train")
    screen.run("hekla job wait train-retry-1")
    screen.matches("failing-script")


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
    said(screen, "hekla queue top", "32 used, 64 in the cluster\n└─ research")
    screen.matches("two-teams")


def test_a_reboot_in_the_middle_starts_the_job_again(screen: Screen) -> None:
    up(screen)
    screen.write("train.py", LATER)
    run = screen.start("hekla run --name train -- python train.py")
    run.until("waiting for the data")
    screen.note("the machine goes down, and comes up again")
    screen.run("hekla down")
    screen.run(f"hekla up -d {OWNER}")
    screen.run("echo 1 > data")
    run.ends()
    screen.matches("reboot")

"""`hekla up`, `status`, `run`, `down`: a cluster that persists across restarts."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tools.kube.processes import free_port
from tools.waiting import until

from hekla import JobHandle
from hekla.cli import leftovers, local_cluster
from hekla.kube import kubeconfig
from hekla.kube.data_dir import running_pid
from hekla.kube.resources import JOBS, NODES, PODS
from hekla.kube.sync_client import SyncClient
from hekla.sdk import job_wait

EXAMPLE = Path(__file__).parents[2] / "examples" / "hello-gang.yaml"


class Hekla:
    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir

    def __call__(self, command: str, *arguments: str, code: int = 0) -> str:
        words = [sys.executable, "-m", "hekla.cli.main", command, "--data-dir", str(self.data_dir)]
        done = subprocess.run(
            [*words, *arguments], capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    @property
    def pid(self) -> int:
        return int((self.data_dir / "hekla.pid").read_text())


@pytest.fixture
def hekla(tmp_path: Path) -> Iterator[Hekla]:
    made = Hekla(tmp_path / "state")
    yield made
    made("down")


def test_a_cluster_runs_until_hekla_down(hekla: Hekla) -> None:
    assert "no cluster is running" in hekla("status", code=3)
    assert "export KUBECONFIG=" in hekla("up", "--port", "0", "--detach")
    assert "1 process" not in hekla("status")
    second = hekla("up", code=1)
    assert f"hekla down --data-dir {hekla.data_dir}" in second
    assert "in use by another hekla at https://127.0.0.1:" in second
    assert hekla("up", "--detach", code=1).count("Error: ") == 1
    assert "job hello-gang: Completed" in hekla("run", str(EXAMPLE))
    assert "3 Succeeded" in hekla("status")
    assert "hekla is down" in hekla("down")
    assert "no cluster is running" in hekla("down")


def test_objects_survive_kill_9(hekla: Hekla) -> None:
    hekla("up", "--port", "0", "--detach")
    hekla("run", str(EXAMPLE))
    os.kill(hekla.pid, signal.SIGKILL)
    hekla("up", "--port", "0", "--detach")
    assert "3 Succeeded" in hekla("status")
    assert "hello-gang already exists" in hekla("run", str(EXAMPLE), code=1)


def test_a_detached_run_returns_and_says_how_to_follow_its_job(hekla: Hekla) -> None:
    hekla("up", "--port", "0", "--detach", "--pod-user", "owner")
    words = ("--name", "later", "--", "echo", "passed")
    shown = hekla("run", "--detach", *words)
    followed = "`hekla job logs -f --data-dir {0}` and `hekla job wait --data-dir {0}` follow later"
    assert f"detached; {followed.format(hekla.data_dir)}" in shown
    with SyncClient(kubeconfig.load(hekla.data_dir / "kubeconfig")) as client:
        job = JobHandle.of("later", client=client)
        assert job.wait() == "Completed"
        assert [line.text for line in job.logs()] == ["passed"]


def test_jobs_complete_on_simulated_nodes(hekla: Hekla) -> None:
    hekla("up", "--port", "0", "--detach", "--no-agent", "--simulated-nodes", "5")
    shown = hekla("run", str(EXAMPLE))
    assert "job hello-gang: Completed" in shown
    assert "nodes     5" in hekla("status")


def test_a_pod_without_a_scheduler_name_runs(hekla: Hekla) -> None:
    """As `kubectl run` creates it: no other scheduler places it."""
    hekla("up", "--port", "0", "--detach")
    container = {"name": "main", "image": "host", "command": ["true"]}
    pod = {
        "metadata": {"name": "plain", "namespace": "default"},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    with SyncClient(kubeconfig.load(hekla.data_dir / "kubeconfig")) as client:
        client.create(PODS, pod)
        with client.watch(PODS, timeout_s=600) as events:
            assert any(e.object["status"].get("phase") == "Succeeded" for e in events)


def start_job(hekla: Hekla, script: str) -> None:
    """Create a job of one pod, and wait until it runs."""
    container = {"name": "main", "image": "host", "command": ["sh", "-c", script]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    task = {"name": "t", "replicas": 1, "template": template}
    job = {"metadata": {"name": "j", "namespace": "default"}, "spec": {"tasks": [task]}}
    with SyncClient(kubeconfig.load(hekla.data_dir / "kubeconfig")) as client:
        client.create(JOBS, job)
        with client.watch(PODS, timeout_s=600) as events:
            assert any(e.object["status"].get("phase") == "Running" for e in events)


def phase_of(hekla: Hekla) -> str:
    """Return the phase of the job when it has finished."""
    with SyncClient(kubeconfig.load(hekla.data_dir / "kubeconfig")) as client:
        job = job_wait.wait(client, "j", namespace="default")
        return str(job["status"]["state"]["phase"])


def test_drain_survives_down_and_kill_9(hekla: Hekla) -> None:
    hekla("up", "--port", "0", "--detach")
    with SyncClient(kubeconfig.load(hekla.data_dir / "kubeconfig")) as client:
        (node,) = client.list(NODES)
        name = node["metadata"]["name"]
        taint = {"key": "disk", "effect": "NoSchedule"}
        patch = {"metadata": {"labels": {"rack": "r1"}}, "spec": {"taints": [taint]}}
        client.patch(NODES, name, patch)
    said = hekla("drain", name, "--reason", "new disk")
    assert (
        f"no node takes pods now: all new and pending jobs wait until `hekla undrain {name}`"
        in (said)
    )
    hekla("down")
    hekla("up", "--port", "0", "--detach")
    os.kill(hekla.pid, signal.SIGKILL)
    hekla("up", "--port", "0", "--detach")
    with SyncClient(kubeconfig.load(hekla.data_dir / "kubeconfig")) as client:
        (node,) = client.list(NODES)
    assert node["spec"]["unschedulable"] is True
    assert node["spec"]["taints"] == [taint]
    assert node["metadata"]["labels"]["rack"] == "r1"
    assert "new disk" in hekla("nodes", name)


def test_status_names_custom_plugins_and_those_left_out(hekla: Hekla, tmp_path: Path) -> None:
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    (plugins / "broken.py").write_text("1 / 0\n")
    (plugins / "last.py").write_text(
        "from hekla.scheduler import Plugin\n\n\nclass Last(Plugin, name='last'):\n    pass\n"
    )
    up = hekla("up", "--port", "0", "--detach", "--no-agent", "--plugins-dir", str(plugins))
    assert f"{plugins / 'broken.py'} cannot be loaded and is left out: ZeroDivisionError" in up
    assert f"; see {hekla.data_dir / 'hekla.log'}" in up
    left_out = f"plugin left out: {plugins / 'broken.py'}: ZeroDivisionError"
    said = until(lambda: text if "plugin    last" in (text := hekla("status")) else None)
    assert left_out in said


def test_jobs_go_on_after_down_and_up(hekla: Hekla, tmp_path: Path) -> None:
    started = tmp_path / "started"
    hekla("up", "--port", "0", "--detach", "--pod-user", "owner")
    start_job(hekla, f"test -e {started} && exit; touch {started}; sleep 1000")
    until(started.exists)
    hekla("down")
    hekla("up", "--port", "0", "--detach", "--pod-user", "owner")
    assert phase_of(hekla) == "Completed"


def test_waits_and_logs_of_the_sdk_go_on_after_kill_9(hekla: Hekla, tmp_path: Path) -> None:
    go = tmp_path / "go"
    hekla("up", "--port", "0", "--detach", "--pod-user", "owner")
    start_job(hekla, f"echo one; until test -e {go}; do sleep 0.1; done; echo two")
    config = kubeconfig.load(hekla.data_dir / "kubeconfig")
    with SyncClient(config) as client, SyncClient(config) as other:
        lines = JobHandle.of("j", client=client).logs(follow=True)
        assert next(lines).text == "one"
        with ThreadPoolExecutor(2) as threads:
            rest = threads.submit(lambda: [line.text for line in lines])
            phase = threads.submit(JobHandle.of("j", client=other).wait)
            os.kill(hekla.pid, signal.SIGKILL)
            hekla("up", "--detach", "--pod-user", "owner")
            go.touch()
            assert rest.result(600) == ["two"]
            assert phase.result(600) == "Completed"


def test_down_waits_for_the_running_pods_if_asked(hekla: Hekla, tmp_path: Path) -> None:
    done = tmp_path / "done"
    hekla("up", "--port", "0", "--detach", "--pod-user", "owner")
    start_job(hekla, f"sleep 2; touch {done}")
    assert "waiting for the running pods" in hekla("down", "--wait")
    assert done.exists()
    hekla("up", "--port", "0", "--detach", "--pod-user", "owner")
    assert phase_of(hekla) == "Completed"


def test_down_fails_the_running_jobs_if_asked(hekla: Hekla) -> None:
    hekla("up", "--port", "0", "--detach", "--pod-user", "owner")
    start_job(hekla, "sleep 1000")
    hekla("down", "--abort")
    hekla("up", "--port", "0", "--detach", "--pod-user", "owner")
    assert phase_of(hekla) == "Failed"


def test_commands_name_the_pods_of_a_cluster_that_was_killed(hekla: Hekla) -> None:
    hekla("up", "--port", "0", "--detach", "--pod-user", "owner")
    start_job(hekla, "sleep 1000")
    kill(hekla)
    flag = f"--data-dir {hekla.data_dir}"
    said = hekla("status", code=3)
    assert "ended without `hekla down`: it crashed or was killed; 1 pod runs on" in said
    assert f"`hekla up -d {flag}` starts it again and adopts it" in said
    assert f"`hekla down --abort {flag}` ends it" in hekla("down", code=1)
    assert "1 pod runs on" in hekla("run", str(EXAMPLE), code=1)
    assert "pods that ran on and were ended: 1" in hekla("down", "--abort")
    assert leftovers.of(hekla.data_dir) == []
    assert "no cluster is running" in hekla("down")
    hekla("up", "--port", "0", "--detach", "--pod-user", "owner")
    assert phase_of(hekla) == "Failed"


def test_a_cluster_that_was_killed_without_pods_is_down(hekla: Hekla) -> None:
    hekla("up", "--port", "0", "--detach")
    kill(hekla)
    assert "none of its pods runs" in hekla("status", code=3)
    assert "none of its pods runs" in hekla("down")
    assert "no cluster is running" in hekla("down")
    assert "job hello-gang: Completed" in hekla("run", str(EXAMPLE))


def kill(hekla: Hekla) -> None:
    """Kill the server, and wait until its lock is free."""
    os.kill(hekla.pid, signal.SIGKILL)
    until(lambda: running_pid(hekla.data_dir) is None)


def test_down_names_the_pods_for_which_it_waits(hekla: Hekla) -> None:
    hekla("up", "--port", "0", "--detach", "--pod-user", "owner")
    start_job(hekla, "trap 'sleep 3; exit' TERM; while :; do sleep 0.1; done")
    assert "still stopping: default/j-t-0; a pod has its grace period" in hekla("down")
    assert "still stopping" in (hekla.data_dir / "hekla.log").read_text()


def test_a_text_of_several_lines_is_indented() -> None:
    assert local_cluster._indented("  plugin x\nTraceback\n  line\n", 4) == (
        "  plugin x\n    Traceback\n      line"
    )


def test_down_refuses_to_wait_and_abort(hekla: Hekla) -> None:
    assert "--wait or --abort, not both" in hekla("down", "--wait", "--abort", code=2)


def server_of(hekla: Hekla) -> str:
    return kubeconfig.load(hekla.data_dir / "kubeconfig").server


def test_a_cluster_keeps_its_port_unless_another_program_takes_it(
    hekla: Hekla,
) -> None:
    hekla("up", "--detach", "--port", str(free_port()), "--no-agent")
    first = server_of(hekla)
    hekla("down")
    welcome = hekla("up", "--detach", "--no-agent")
    assert server_of(hekla) == first
    assert "is taken" not in welcome
    assert f"hekla down --data-dir {hekla.data_dir}" in welcome
    hekla("down")
    port = int(first.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)):
        assert f"port {port} is taken by another program" in hekla("up", "--detach", "--no-agent")
        second = server_of(hekla)
        assert second != first
        hekla("down")
        refused = hekla("up", "--detach", "--no-agent", "--port", str(port), code=1)
        assert f"cannot listen on 127.0.0.1:{port}" in refused
    hekla("up", "--detach", "--no-agent")
    assert server_of(hekla) == second


def test_copied_kubeconfigs_are_named_only_for_a_cluster_that_had_one() -> None:
    known = local_cluster._port_note(7443, "https://127.0.0.1:9", is_new=False)
    assert "kubeconfigs that were copied" in known
    new = local_cluster._port_note(7443, "https://127.0.0.1:9", is_new=True)
    assert new.endswith("so the API server is at https://127.0.0.1:9, which it will keep")
    assert local_cluster._port_note(9, "https://127.0.0.1:9", is_new=True) == ""


def test_first_start_asks_for_the_documented_port(tmp_path: Path) -> None:
    assert local_cluster._usual_port(tmp_path) == 7443
    (tmp_path / "kubeconfig").write_text("nonsense")
    assert local_cluster._usual_port(tmp_path) == 7443


def test_a_pod_that_runs_through_kill_9_ends_with_its_own_result(
    hekla: Hekla, tmp_path: Path
) -> None:
    go_on = tmp_path / "go-on"
    hekla("up", "--port", "0", "--detach", "--pod-user", "owner")
    start_job(hekla, f"until [ -e {go_on} ]; do sleep 0.1; done")
    os.kill(hekla.pid, signal.SIGKILL)
    hekla("up", "--port", "0", "--detach", "--pod-user", "owner")
    go_on.touch()
    assert phase_of(hekla) == "Completed"

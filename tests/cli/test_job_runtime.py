"""`vcctl job submit`, `wait`, `explain`, `scale` and --watch against a server without controllers.

The tests write the status that a command waits for, so nothing sleeps.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from hekla.cli import terminal
from hekla.cli.vcctl import explain
from hekla.kube import kubeconfig
from hekla.kube.resources import JOBS, PODGROUPS, PODS
from hekla.kube.sync_client import SyncClient
from tests.cli.conftest import Run

Make = Callable[..., dict[str, Any]]


def test_submit_builds_a_job_from_flags(vcctl: Run, admin: SyncClient, namespace: str) -> None:
    done = vcctl(
        *("job", "submit", "train", "--image", "pytorch", "-r", "4", "--gpu", "1", "--cpu", "2"),
        *("--memory", "4Gi", "--plugin", "svc", "--plugin", "ssh=--no-root", "-e", "EPOCHS=3"),
        *("--label", "team=ml", "--policy", "PodFailed=RestartJob", "--max-retry", "1", "-m", "2"),
        *("--", "python", "train.py", "-n", "3"),
    )
    assert (done.code, done.out) == (0, "run job train successfully\n"), done.err
    made = admin.get(JOBS, "train", namespace=namespace)
    spec = made["spec"]
    assert spec["plugins"] == {"svc": [], "ssh": ["--no-root"]}
    assert spec["policies"] == [{"event": "PodFailed", "action": "RestartJob"}]
    assert (spec["minAvailable"], spec["maxRetry"]) == (2, 1)
    assert made["metadata"]["labels"] == {"team": "ml"}
    (container,) = spec["tasks"][0]["template"]["spec"]["containers"]
    assert container["command"] == ["python", "train.py", "-n", "3"]
    assert container["env"] == [{"name": "EPOCHS", "value": "3"}]
    assert container["resources"]["limits"] == {"memory": "4Gi", "nvidia.com/gpu": "1"}
    assert container["resources"]["requests"]["memory"] == "4Gi"


def test_submit_dry_run_prints_the_job(vcctl: Run, admin: SyncClient, namespace: str) -> None:
    done = vcctl("job", "submit", "x", "--dry-run", "-c", "echo hi | wc")
    shown = yaml.safe_load(done.out)
    (container,) = shown["spec"]["tasks"][0]["template"]["spec"]["containers"]
    assert container["command"] == ["sh", "-c", "echo hi | wc"]
    assert not admin.list(JOBS, namespace=namespace).items


def test_submit_takes_a_job_from_a_python_function(
    vcctl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unique: str
) -> None:
    (tmp_path / f"{unique}.py").write_text(
        "from hekla import Job, Task\n"
        "def make():\n"
        "    return Job('made', [Task('worker', command='true')])\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    done = vcctl("job", "submit", "--python", f"{unique}:make")
    assert (done.code, done.out) == (0, "run job made successfully\n")
    assert vcctl("job", "submit", "--python", f"{unique}:gone").code == 255
    assert vcctl("job", "submit").code == 255


def test_wait_exits_with_the_result_of_the_job(
    vcctl: Run, make_job: Make, admin: SyncClient, namespace: str
) -> None:
    make_job("good", phase="Completed")
    make_job("bad", phase="Failed")
    make_job("aborted", phase="Aborted")
    done = vcctl("job", "wait", "good")
    assert (done.code, done.out) == (0, "job good is Completed\n")
    done = vcctl("job", "wait", "bad")
    assert (done.code, done.out) == (1, "job bad is Failed\n")
    assert vcctl("job", "wait", "bad", "--for", "running").code == 1
    assert vcctl("job", "wait", "aborted", "--for", "Aborted").code == 0
    assert vcctl("job", "wait", "good", "--for", "compleated").code == 1
    done = vcctl("job", "wait", "aborted", "--timeout", "0.01")
    assert done.code == 124
    assert "vcctl job explain aborted" in done.err


def test_wait_sees_a_later_change(vcctl: Run, make_job: Make, server: Path, namespace: str) -> None:
    make_job("later", phase="Running")

    def complete() -> None:
        with SyncClient(kubeconfig.load(server), component="test") as client:
            client.patch_status(
                JOBS, "later", {"state": {"phase": "Completed"}}, namespace=namespace
            )

    controller = threading.Thread(target=complete)
    controller.start()
    done = vcctl("job", "wait", "later", "--timeout", "120s")
    controller.join()
    assert (done.code, done.out) == (0, "job later is Completed\n")


def unschedulable(of: dict[str, Any], message: str) -> dict[str, Any]:
    """Return the PodGroup of a job with the scheduler's verdict."""
    condition = {
        "type": "Unschedulable",
        "status": "True",
        "message": message,
        "lastTransitionTime": "2026-01-02T00:00:00Z",
    }
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": f"{of['metadata']['name']}-{of['metadata']['uid']}"},
        "spec": {"queue": "default", "minMember": 1},
        "status": {"phase": "Inqueue", "conditions": [condition]},
    }


@pytest.mark.parametrize(
    "words", [("job", "wait", "stuck"), ("logs", "stuck", "-f")], ids=["wait", "logs"]
)
def test_waiting_commands_print_why_the_job_does_not_run(
    words: tuple[str, ...],
    tool: Run,
    config: Path,
    make_job: Make,
    admin: SyncClient,
    server: Path,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = make_job("stuck", phase="Pending")
    admin.create(PODGROUPS, unschedulable(made, "no node has 9 cpu"), namespace=namespace)
    printed = threading.Event()
    echo = terminal.echo

    def notify(text: str, **more: Any) -> None:
        echo(text, **more)
        printed.set()

    def complete() -> None:
        printed.wait(60)
        with SyncClient(kubeconfig.load(server), component="test") as client:
            over = {"state": {"phase": "Completed"}}
            client.patch_status(JOBS, "stuck", over, namespace=namespace)

    monkeypatch.setattr(terminal, "echo", notify)
    controller = threading.Thread(target=complete)
    controller.start()
    done = tool("hekla", *words)
    controller.join()
    assert "job stuck is pending: no node has 9 cpu\n" in done.err
    assert f"  next: `hekla explain stuck -n {namespace}` tells more\n" in done.err
    assert "no node has 9 cpu" not in done.out


def test_hints_of_vcctl_name_vcctl(tool: Run, config: Path, make_job: Make) -> None:
    make_job("aborted", phase="Aborted")
    for program in ("vcctl", "hekla"):
        done = tool(program, "job", "wait", "aborted", "--timeout", "0.01")
        assert f"`{program} job explain aborted`" in done.err


def test_logs_of_a_job_without_pods_print_a_message_on_stderr(vcctl: Run, make_job: Make) -> None:
    make_job("quiet")
    done = vcctl("job", "logs", "quiet")
    assert (done.code, done.out) == (0, "")
    assert "no pods yet" in done.err


def test_logs_of_a_job_whose_pods_are_deleted_name_the_flag_for_what_is_kept(
    tool: Run, config: Path, make_job: Make
) -> None:
    make_job("over", phase="Completed")
    done = tool("hekla", "logs", "over")
    assert (done.code, done.out) == (0, "")
    assert "job over has no pods any more; `hekla job logs over -n " in done.err


def test_hekla_logs_is_hekla_job_logs(tool: Run, config: Path, make_job: Make) -> None:
    make_job("quiet")
    short, long = tool("hekla", "logs", "quiet"), tool("hekla", "job", "logs", "quiet")
    assert (short.code, short.err) == (0, long.err)
    missing = tool("hekla", "logs", "quite")
    assert 'did you mean "quiet"?' in missing.err


def test_logs_take_the_name_of_a_pod_and_refuse_what_is_for_jobs(
    vcctl: Run, admin: SyncClient, namespace: str
) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a-w-0", "labels": {"volcano.sh/job-name": "a"}},
        "spec": {"containers": [{"name": "main", "image": "host"}]},
    }
    admin.create(PODS, pod, namespace=namespace)
    done = vcctl("job", "logs", "a-w-0")
    assert (done.code, done.out, done.err) == (0, "", "pod a-w-0 has no output\n")
    done = vcctl("job", "logs", "a-w-0", "--attempt", "1")
    assert done.code == 255
    assert "a-w-0 is a pod, and --attempt is for jobs" in done.err
    assert "`vcctl job logs a --attempt …`" in done.err
    done = vcctl("job", "logs", "a-w-0", "-c", "mian")
    assert 'pod a-w-0 has no container "mian"' in done.err
    assert 'did you mean "main"?' in done.err


def test_scale_changes_a_task_and_adapts_min_available(
    vcctl: Run, make_job: Make, admin: SyncClient, namespace: str
) -> None:
    make_job("train", replicas=4)
    done = vcctl("job", "scale", "train", "-r", "2")
    assert (done.code, done.out) == (0, "scale job train successfully\n"), done.err
    assert "minAvailable is now 2" in done.err
    spec = admin.get(JOBS, "train", namespace=namespace)["spec"]
    assert spec["minAvailable"] == 2
    assert (spec["tasks"][0]["replicas"], spec["tasks"][0]["minAvailable"]) == (2, 2)
    done = vcctl("job", "scale", "train", "-r", "2", "--task", "nope")
    assert done.code == 255
    assert "there are: worker" in done.err


def test_explain_reports_a_job_without_podgroup(vcctl: Run, make_job: Make) -> None:
    make_job("train")
    done = vcctl("job", "explain", "train")
    assert done.code == 0
    assert "no controller has handled it" in done.out


def test_explain_shows_the_newest_condition(
    vcctl: Run, make_job: Make, admin: SyncClient, namespace: str
) -> None:
    made = make_job("train", phase="Pending")
    message = "2/2 tasks in gang unschedulable: 0/3 nodes are available"
    body = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": f"train-{made['metadata']['uid']}"},
        "spec": {"queue": "default", "minMember": 2, "minResources": {"cpu": "8k"}},
        "status": {
            "phase": "Inqueue",
            "conditions": [
                {
                    "type": "Scheduled",
                    "status": "True",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                },
                {
                    "type": "Unschedulable",
                    "status": "True",
                    "reason": "NotEnoughResources",
                    "message": message,
                    "lastTransitionTime": "2026-01-02T00:00:00Z",
                },
            ],
        },
    }
    admin.create(PODGROUPS, body, namespace=namespace)
    lines = vcctl("job", "explain", "-n", "train").lines
    assert lines[:3] == [
        f"job {namespace}/train is Pending",
        f"  {message}",
        "",  # no next step: the use of queues is not the cause
    ]
    assert "  minResources cpu 8000" in lines


def _job(phase: str, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "j", "namespace": "n", "uid": "u"},
        "spec": {"queue": "q"},
        "status": {"state": {"phase": phase}, **status},
    }


def _answer(job: dict[str, Any], queue: Any = None, pods: Any = ()) -> list[str]:
    return list(explain.explanation(job, None, queue, list(pods), []))[1:3]


def test_explain_has_a_reason_and_next_step_for_each_state() -> None:
    open_queue = {"metadata": {"name": "q"}, "status": {"state": "Open"}}
    closed = {"metadata": {"name": "q"}, "status": {"state": "Closed"}}
    failed_pod: dict[str, Any] = {
        "metadata": {"name": "j-w-0"},
        "status": {
            "phase": "Failed",
            "containerStatuses": [{"state": {"terminated": {"exitCode": 3, "reason": "Error"}}}],
        },
    }
    assert _answer(_job("Aborted"), open_queue) == [
        "  it is suspended and can be resumed",
        "  next: vcctl job resume -N j -n n",
    ]
    assert _answer(_job("Failed"), open_queue, [failed_pod]) == [
        "  pod j-w-0 exited with code 3: Error",
        "  next: vcctl job logs -N j -n n",
    ]
    evicted = {**failed_pod["status"], "reason": "Evicted", "message": "low on disk"}
    assert _answer(_job("Failed"), open_queue, [{**failed_pod, "status": evicted}])[0] == (
        "  pod j-w-0 exited with code 3: Evicted: low on disk"
    )
    crashed = {"exitCode": 139, "reason": "Error"}
    status = {**failed_pod["status"], "containerStatuses": [{"state": {"terminated": crashed}}]}
    assert _answer(_job("Failed"), open_queue, [{**failed_pod, "status": status}])[0] == (
        "  pod j-w-0 exited with code 139: SIGSEGV"
    )
    used = {"state": {"phase": "Failed", "message": "pod j-w-0 failed, but all 3 retries are used"}}
    assert _answer(_job("Failed", **used), open_queue, [failed_pod]) == [
        "  pod j-w-0 failed, but all 3 retries are used",
        "  pod j-w-0 exited with code 3: Error",
    ]
    policy = "pod j-w-0 failed with exit code 3; by policy: RestartJob, but all 2 retries are used"
    used = {"state": {"phase": "Failed", "message": policy}}
    assert _answer(_job("Failed", **used), open_queue, [failed_pod]) == [
        "  pod j-w-0 failed with exit code 3",
        "  by policy: RestartJob, but all 2 retries are used",
    ]
    lines = list(explain.explanation(_job("Failed", **used), None, open_queue, [failed_pod], []))
    assert lines[3].startswith("  next: ")
    killed = {"exitCode": 137, "reason": "OOMKilled"}
    status = {"containerStatuses": [{"state": {"terminated": killed}}]}
    lines = list(
        explain.explanation(
            _job("Failed", **used), None, open_queue, [{**failed_pod, "status": status}], []
        )
    )
    assert lines[3] == "  pod j-w-0 exited with code 137: OOMKilled"
    assert _answer(_job("Pending")) == [
        "  queue 'q' does not exist",
        "  next: vcctl queue create -n q",
    ]
    assert _answer(_job("Pending"), closed) == [
        "  queue 'q' is Closed: it admits no jobs",
        "  next: vcctl queue operate -n q -a open",
    ]
    assert _answer(_job("Completed"), open_queue)[0] == "  it has completed"


def _pending(reason: str, pods: Any = ()) -> list[str]:
    """Explain a pending job whose PodGroup has this reason."""
    condition = {"type": "Unschedulable", "message": reason}
    group = {"metadata": {"name": "g"}, "status": {"phase": "Inqueue", "conditions": [condition]}}
    queue = {"metadata": {"name": "q"}, "status": {"state": "Open"}}
    return list(explain.explanation(_job("Pending"), group, queue, list(pods), []))


def test_explain_leads_to_queues_only_if_a_queue_is_the_cause() -> None:
    step = "  next: vcctl queue top"
    assert step in _pending("1/1 tasks in gang unschedulable: queue 'q' uses its share (capacity)")
    assert step not in _pending("1/1 tasks in gang unschedulable: no node has nvidia.com/gpu")


def test_explain_names_the_scheduling_gates_of_pods() -> None:
    gated = {
        "metadata": {"name": "j-w-0"},
        "spec": {"schedulingGates": [{"name": "example.com/data"}, {"name": "example.com/ok"}]},
    }
    lines = _pending("2 tasks are held by scheduling gates", [gated, gated])
    want = "  2 held by scheduling gates: example.com/data, example.com/ok; remove them to have "
    assert f"{want}these pods placed" in lines


def test_explain_does_not_advise_to_remove_the_gate_of_a_queue() -> None:
    gate = {"name": "scheduling.volcano.sh/queue-allocation-gate"}
    gated = {"metadata": {"name": "j-w-0"}, "spec": {"schedulingGates": [gate]}}
    lines = _pending("1 task is held by scheduling gates", [gated])
    assert f"  1 held until the queue allows them: {gate['name']}" in lines
    assert not any("remove" in line and "kubectl" in line for line in lines)


def test_watch_prints_the_list_and_then_every_change(
    config: Path, make_job: Make, admin: SyncClient, namespace: str
) -> None:
    make_job("train", phase="Pending")
    process = subprocess.Popen(
        [sys.executable, "-m", "hekla.cli.vcctl.main", "job", "list", "--watch"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "KUBECONFIG": str(config)},
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("Name    Creation")
        assert re.match(r"train   \S+ +Pending", process.stdout.readline())
        admin.patch_status(JOBS, "train", {"state": {"phase": "Running"}}, namespace=namespace)
        assert re.match(r"train   \S+ +Running", process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()

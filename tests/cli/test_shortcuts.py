"""vsub, vjobs, vqueues, vcancel, vsuspend, vresume: -n is the name here, -N the namespace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hekla.kube.resources import COMMANDS, JOBS
from hekla.kube.sync_client import SyncClient
from tests.cli.conftest import Run

Make = Callable[..., dict[str, Any]]


def test_vsub_splits_the_command_like_a_shell(tool: Run, admin: SyncClient, namespace: str) -> None:
    done = tool("vsub", "-n", "sub", "-N", namespace, "-c", "sh -c 'echo a b'", "-i", "img")
    assert (done.code, done.out) == (0, "run job sub successfully\n")
    (task,) = admin.get(JOBS, "sub", namespace=namespace)["spec"]["tasks"]
    (container,) = task["template"]["spec"]["containers"]
    assert container["command"] == ["sh", "-c", "echo a b"]
    assert container["image"] == "img"


@pytest.mark.parametrize(
    ("flags", "want"),
    {
        "no amount": (("-R", "cpu"), "invalid resource 'cpu', expected <resource>=<value>\n"),
        "no quantity": (("-L", "cpu=much"), "resource cpu: "),
        "open quote": (("-c", "echo 'x"), 'command "echo \'x" is not a shell command: no clos'),
    }.values(),
)
def test_vsub_refuses_a_flag_value_without_a_bug_report(
    tool: Run, flags: tuple[str, ...], want: str
) -> None:
    done = tool("vsub", "-n", "sub", *flags)
    assert (done.code, done.out) == (255, "")
    assert done.err.startswith(f"Failed to run job: {want}")


def test_empty_amounts_are_left_out(tool: Run, admin: SyncClient, namespace: str) -> None:
    assert tool("vsub", "-n", "none", "-R", "", "-L", "").code == 0
    assert tool("vsub", "-n", "limits", "-R", "", "-L", "cpu=1").code == 0

    def resources(name: str) -> Any:
        (task,) = admin.get(JOBS, name, namespace=namespace)["spec"]["tasks"]
        return task["template"]["spec"]["containers"][0].get("resources")

    assert not resources("none")
    assert resources("limits") == {"limits": {"cpu": "1"}}


def test_vsub_takes_its_defaults_from_the_environment(
    tool: Run, admin: SyncClient, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOLCANO_DEFAULT_IMAGE", "ours")
    monkeypatch.setenv("VOLCANO_DEFAULT_JOB_NAMESPACE", namespace)
    monkeypatch.setenv("VOLCANO_SCHEDULER_NAME", "other")
    assert tool("vsub", "-n", "sub").code == 0
    made = admin.get(JOBS, "sub", namespace=namespace)
    assert made["spec"]["schedulerName"] == "other"
    assert made["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["image"] == "ours"


def test_vjobs_lists_and_shows(tool: Run, make_job: Make) -> None:
    assert tool("vjobs").out == "No resources found\n"
    condition = {"status": "Running", "lastTransitionTime": "2026-01-02T03:04:05Z"}
    make_job("train", phase="Running", status={"conditions": [condition]})
    assert tool("vjobs").lines[1].startswith("train   ")
    for filters in (("--selector", "nothing"), ("--phase", "Failed"), ("-S", "other")):
        assert tool("vjobs", *filters).out == "No resources found\n"
    shown = tool("vjobs", "-n", "train").out
    assert shown.startswith("Name:\ttrain\n")
    assert "Conditions:" not in shown


def test_vcancel_vsuspend_and_vresume(
    tool: Run, make_job: Make, admin: SyncClient, namespace: str
) -> None:
    make_job("train")
    assert tool("vsuspend", "-n", "train", "-N", namespace).out == ""
    assert tool("vresume", "-n", "train").out == ""
    actions = sorted(one["action"] for one in admin.list(COMMANDS, namespace=namespace))
    assert actions == ["AbortJob", "ResumeJob"]
    done = tool("vcancel", "-n", "train")
    assert (done.code, done.out) == (0, "cancel job train successfully\n")


@pytest.mark.parametrize("verb", ["run", "cancel", "suspend", "resume"])
def test_missing_name_is_a_failure_of_the_verb(tool: Run, verb: str) -> None:
    done = tool("vsub" if verb == "run" else f"v{verb}")
    assert done.code == 255
    assert done.err.startswith(f"Failed to {verb} job: job name ")


def test_the_name_of_a_job_is_an_argument_too(tool: Run, make_job: Make) -> None:
    make_job("train")
    assert "train" in tool("vjobs", "train").out
    twice = tool("vcancel", "train", "-n", "other")
    assert (twice.code, "two jobs are named: train, and -n other" in twice.err) == (1, True)
    assert tool("vsuspend", "train").code == 0
    assert tool("vcancel", "train").out == "cancel job train successfully\n"


def test_vqueues_counts_podgroups(tool: Run) -> None:
    done = tool("vqueues", "-n", "default")
    assert done.lines[0] == (
        "Name                     Weight  State   Inqueue Pending Running Unknown "
    )
    assert len(done.lines) == 2
    assert len(tool("vqueues").lines) > 2
    done = tool("vqueues", "-n", "nowhere-at-all")
    assert (done.code, done.out) == (255, "")
    assert done.err.startswith(
        'Failed to list queues: queues.scheduling.volcano.sh "nowhere-at-all" not found\n'
    )


def test_vsub_warns_of_a_command_that_needs_a_shell(tool: Run) -> None:
    done = tool("vsub", "-n", "a", "-c", "echo $HOME")
    assert done.code == 0
    assert "no shell runs 'echo $HOME': write -c 'sh -c '" in done.err
    for name, fine in (("b", "echo hi"), ("c", "sh -c 'echo $HOME'"), ("d", "echo $(HOME)")):
        assert tool("vsub", "-n", name, "-c", fine).err == ""
    assert "run without one" in " ".join(tool("vsub", "--help").out.split())

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
    assert len(tool("vjobs", "--selector", "nothing").lines) == 1, "the header stays"
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


@pytest.mark.parametrize("name", ["vsub", "vcancel", "vsuspend", "vresume"])
def test_missing_name_fails_as_in_volcano(tool: Run, name: str) -> None:
    done = tool(name)
    assert done.code == 255
    assert done.out.startswith("Failed to: job name ")


def test_vqueues_counts_podgroups(tool: Run) -> None:
    done = tool("vqueues", "-n", "default")
    assert done.lines[0] == (
        "Name                     Weight  State   Inqueue Pending Running Unknown "
    )
    assert len(done.lines) == 2
    assert len(tool("vqueues").lines) > 2
    done = tool("vqueues", "-n", "nowhere-at-all")
    assert (done.code, done.out) == (
        255,
        'Failed to: queues.scheduling.volcano.sh "nowhere-at-all" not found\n',
    )

"""What is left of ended pods on a node is bounded, although their objects still exist."""

from __future__ import annotations

import pytest

from hekla.kube.resources import PODS
from hekla.nodeagent import agent, finished_pods
from hekla.nodeagent.finished_pods import MAX_AGE_S, FinishedPod, surplus
from tests.nodeagent.conftest import Machine

NOW = 1_700_000_000.0


def test_old_pods_and_the_oldest_beyond_the_number_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(finished_pods, "MAX_FINISHED_PODS", 2)
    pods = [FinishedPod(str(age), NOW - age) for age in (3, 1, 2)]
    assert surplus(pods, NOW) == ["3"]
    assert surplus([FinishedPod("old", NOW - MAX_AGE_S - 1)], NOW) == ["old"]
    assert surplus([FinishedPod("young", NOW - MAX_AGE_S + 1)], NOW) == []


async def test_forgotten_pod_leaves_no_directory_and_its_log_is_still_found(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await machine.stop_agent()
    monkeypatch.setattr(agent, "GARBAGE_INTERVAL_S", 0.05)
    machine.start_agent()
    await machine.run_pod("first", "sh", "-c", "echo hello")
    first = await machine.ended("first")
    directory = machine.directory / "pods" / first["metadata"]["uid"]
    assert directory.exists()
    monkeypatch.setattr(finished_pods, "MAX_FINISHED_PODS", 0)
    await machine.run_pod("second", "sh", "-c", "exit 3")
    second = await machine.ended("second")
    while any((machine.directory / "pods").iterdir()):
        await machine.client.clock.sleep(0.02)
    assert await machine.logs("first") == "hello\n"
    await machine.stop_agent()
    machine.start_agent()  # it does not run forgotten pods again
    await machine.run_pod("third", "true")
    await machine.ended("third")
    for name, pod in (("first", first), ("second", second)):
        assert (await machine.client.get(PODS, name, namespace="default"))["status"] == pod[
            "status"
        ]
        await machine.client.delete(PODS, name, namespace="default")

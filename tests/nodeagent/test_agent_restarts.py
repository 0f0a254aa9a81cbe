"""Pods whose agent stops, is killed or is started again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from hekla.kube.resources import EVENTS, PODS
from hekla.nodeagent import processes
from hekla.nodeagent.processes import Process
from tests.nodeagent.conftest import Machine, state


async def test_pod_that_ends_without_an_agent_is_reported_by_the_next_one(
    machine: Machine, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    await machine.run_pod("p", "sh", "-c", f"echo up; read line < {gate}; echo $line; exit 5")
    before = await machine.running("p")
    await machine.stop_agent()
    await asyncio.to_thread(gate.write_text, "while you were away\n")
    machine.start_agent()
    after = await machine.ended("p")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert state(after)["restartCount"] == 0
    assert state(after)["state"]["terminated"]["exitCode"] == 5
    assert await machine.logs("p") == "up\nwhile you were away\n"


async def test_aborted_pod_fails_and_says_that_its_node_was_shut_down(machine: Machine) -> None:
    await machine.run_pod("p", "sleep", "1000")
    await machine.running("p")
    assert machine.agent is not None
    await machine.agent.abort(5)
    status = (await machine.client.get(PODS, "p", namespace="default"))["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "Terminated")
    assert "`hekla down --abort`" in status["message"]


async def test_suspended_pod_goes_on_with_the_next_agent(machine: Machine, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    script = f"echo run >> {runs}; test $(wc -l < {runs}) = 2 || sleep 1000"
    await machine.run_pod("p", "sh", "-c", script)
    await machine.running("p")
    while not runs.exists():
        await machine.client.get(PODS, "p", namespace="default")
    assert machine.agent is not None
    await machine.agent.suspend(5)
    await machine.run_pod("next", "true")
    pod = await machine.client.get(PODS, "p", namespace="default")
    assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Running", "NodeShutdown")
    assert state(pod)["state"]["waiting"]["reason"] == "NodeShutdown"
    await machine.stop_agent()
    machine.start_agent()
    pod = await machine.ended("p")
    assert pod["status"]["phase"] == "Succeeded"
    assert "reason" not in pod["status"]
    assert state(pod)["restartCount"] == 1
    assert (await machine.ended("next"))["status"]["phase"] == "Succeeded"
    events = await machine.client.list(EVENTS, namespace="default")
    reasons = [each["reason"] for each in events if each["involvedObject"]["name"] == "p"]
    assert "NodeShutdown" in reasons


async def test_pod_whose_processes_all_ended_without_an_agent_goes_on(
    machine: Machine, tmp_path: Path
) -> None:
    """As after a restart of the machine: nothing is left to report an exit code."""
    runs = tmp_path / "runs"
    script = f"echo run >> {runs}; test $(wc -l < {runs}) = 2 || sleep 1000"
    await machine.run_pod("p", "sh", "-c", script)
    await machine.running("p")
    while not runs.exists():
        await machine.client.get(PODS, "p", namespace="default")
    (record,) = (machine.directory / "pods").glob("*/containers/main/0.proc")
    await machine.stop_agent()
    pid = int(record.read_text().split()[0])
    os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        await asyncio.to_thread(os.waitpid, pid, 0)
    machine.start_agent()
    pod = await machine.ended("p")
    assert pod["status"]["phase"] == "Succeeded"
    assert state(pod)["lastState"]["terminated"]["exitCode"] == 137


async def test_running_pod_is_adopted_by_the_next_agent(machine: Machine, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    await machine.run_pod("p", "sh", "-c", f"read line < {gate}; echo $line")
    await machine.running("p")
    await machine.stop_agent()
    machine.start_agent()
    await machine.run_pod("q", "true")
    await machine.ended("q")  # the new agent is running
    await asyncio.to_thread(gate.write_text, "still here\n")
    after = await machine.ended("p")
    assert after["status"]["phase"] == "Succeeded"
    assert await machine.logs("p") == "still here\n"


async def test_container_starts_once_if_the_agent_dies_during_the_start(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent dies before the process starts, and after it but before that is recorded."""
    notes = tmp_path / "notes"
    line = ("sh", "-c", f"echo run >> {notes}/$HOSTNAME; sleep 0.1")
    notes.mkdir()
    real = processes.spawn

    dead = asyncio.Event()

    def dies_before(*_: Any, **__: Any) -> Process:
        dead.set()
        raise asyncio.CancelledError

    def dies_after(*words: Any, **more: Any) -> Process:
        real(*words, **more)
        return dies_before()

    for name, death in (("before", dies_before), ("after", dies_after)):
        monkeypatch.setattr(processes, "spawn", death)
        await machine.run_pod(name, *line)
        async with asyncio.timeout(120):
            await dead.wait()
        dead.clear()
        monkeypatch.setattr(processes, "spawn", real)
        await machine.stop_agent()
        machine.start_agent()
        ended = await machine.ended(name)
        assert ended["status"]["phase"] == "Succeeded"
        assert (notes / name).read_text() == "run\n"

"""Processes that wait to become a container."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.waiting import until

from hekla.nodeagent import sandbox
from hekla.nodeagent.warm_starts import WarmStart, WarmStarts

from .conftest import Machine


@pytest.fixture
def warm(tmp_path: Path) -> Iterator[WarmStarts]:
    isolate = sandbox.isolation_support().isolation
    if isolate == "none":
        pytest.skip("needs namespaces")
    made = WarmStarts(tmp_path / "warm", isolate)
    yield made
    made.close()


async def test_container_runs_in_a_waiting_process(machine: Machine) -> None:
    await machine.run_pod("earlier", "true")
    await machine.ended("earlier")
    assert machine.agent is not None
    waiting = machine.agent._warm
    if not waiting._count:
        pytest.skip("needs namespaces")
    waiting.fill()
    first = waiting._waiting[0]
    await machine.run_pod("p", "sh", "-c", "echo from warm; exit 3")
    pod = await machine.ended("p")
    state = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert state["exitCode"] == 3
    assert "from warm" in await machine.logs("p")
    assert not first.process.is_alive
    assert first not in waiting._waiting


async def test_taken_processes_are_replaced(warm: WarmStarts) -> None:
    warm.fill()
    taken = warm.take()
    assert taken is not None
    warm.fill()
    assert len(warm._waiting) == 2
    warm._discard(taken)


async def test_process_that_ended_is_not_used(warm: WarmStarts) -> None:
    warm.fill()
    for each in warm._waiting:
        os.killpg(each.process.pid, 9)
    until(lambda: not any(each.process.is_alive for each in warm._waiting))
    assert warm.take() is None


def test_close_leaves_no_process_and_no_file(warm: WarmStarts, tmp_path: Path) -> None:
    warm.fill()
    started = list(warm._waiting)
    warm.close()
    assert not any(each.process.is_alive for each in started)
    assert list((tmp_path / "warm").iterdir()) == []
    warm.fill()
    assert warm._waiting == []


def _agent_dies(taken: WarmStart) -> None:
    os.close(taken.pipe)
    os.waitpid(taken.process.pid, 0)


async def test_container_that_was_chosen_and_not_started_has_no_record(
    warm: WarmStarts, tmp_path: Path
) -> None:
    """The agent ends after it wrote the record and before it wrote the pipe."""
    warm.fill()
    taken = warm.take()
    assert taken is not None
    record, exit_file = tmp_path / "0.proc", tmp_path / "0.exit"
    record.write_text(f"{taken.process.pid} {taken.process.born}")
    taken.control.write_text(f"{exit_file}\n")
    _agent_dies(taken)
    assert not record.exists(), "the next agent would take it for a container that was killed"
    assert not exit_file.exists()
    assert not taken.control.exists()


async def test_unused_process_ends_with_the_agent(warm: WarmStarts) -> None:
    warm.fill()
    taken = warm.take()
    assert taken is not None
    _agent_dies(taken)
    assert not taken.control.exists()


def test_start_keeps_the_files_of_running_containers_of_a_killed_agent(
    warm: WarmStarts, tmp_path: Path
) -> None:
    """A container reads at its end where its exit code belongs."""
    directory = tmp_path / "warm"
    directory.mkdir()
    (directory / "1-1").write_text("/somewhere/0.exit\n")
    (directory / "1-2").touch()
    warm.fill()
    left = {path.name for path in directory.iterdir() if path.name.startswith("1-")}
    assert left == {"1-1"}

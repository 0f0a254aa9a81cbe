"""The decision log: recorded decisions of a real scheduler, replayed."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hekla.cli.main import main
from hekla.kube.resources import NODES, PODGROUPS, PODS, PRIORITY_CLASSES, QUEUES
from hekla.scheduler.errors import ReplayError
from hekla.scheduler.plugins import builtin
from hekla.scheduler.service.decision_log import LAST_APPLIED, DecisionLog, Start, described
from hekla.scheduler.service.replay import replay

from .test_service import configure
from .world import Objects, World, pod

BUSY = """\
actions: "enqueue, allocate, preempt, backfill"
tiers:
- plugins: [{name: priority}, {name: gang, enablePreemptable: false}, {name: conformance}]
- plugins: [{name: overcommit}, {name: drf}, {name: predicates}, {name: nodeorder}]
"""


async def a_busy_day(world: World, log: DecisionLog) -> None:
    """Bound and pending gangs, a new configuration, an eviction, nodes added and deleted."""
    scheduler = await world.scheduler(decision_log=log)
    await world.client.create(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 9})
    await world.node("n1", 2)
    await world.gang("a", 1)
    await world.bound("a-0")
    await configure(world, BUSY)
    await scheduler.turns(lambda: "preempt" in scheduler.config.actions)
    await world.gang("b", 3)
    await world.condition("b", "in gang unschedulable")
    await world.client.patch_status(PODS, "a-0", {"phase": "Running"}, namespace="default")
    await world.node("n2", 2)
    await world.bound("a-0", "b-0", "b-1", "b-2")
    body = pod("c-0", group="c", cpu="2", priorityClassName="high")
    body["metadata"]["annotations"][LAST_APPLIED] = "all that kubectl was told"
    await world.group("c", 1, priorityClassName="high")
    await world.client.create(PODS, body)
    await world.condition("c", "")
    terminating = await world.until(PODS, are_terminating)
    await world.remove(*terminating)
    await world.until(PODS, lambda pods: pods["c-0"]["spec"].get("nodeName"))
    await world.client.delete(PODGROUPS, "b", namespace="default")
    await world.node("n3", 2)
    await world.client.delete(NODES, "n2")
    await world.gang("d", 1)
    await world.until(PODS, lambda pods: pods["d-0"]["spec"].get("nodeName"))
    await world.until(QUEUES, lambda queues: queues["default"]["status"]["allocated"])


def are_terminating(pods: Objects) -> list[str]:
    """Wait until both victims of c are evicted; return them."""
    found = [name for name, pod in pods.items() if pod["metadata"].get("deletionTimestamp")]
    return found if len(found) == 2 else []


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.open(path)]


def files_in(directory: Path) -> list[Path]:
    return list(directory.glob("decisions*"))


def cut_off(path: Path, count: int) -> None:
    path.write_bytes(path.read_bytes()[:-count])


async def finish(world: World, log: DecisionLog) -> None:
    await world.stack.aclose()
    await asyncio.to_thread(log.close)


async def test_every_recorded_cycle_gives_the_same_plan_again(world: World, tmp_path: Path) -> None:
    path = tmp_path / "decisions"
    log = DecisionLog(path)
    await a_busy_day(world, log)
    await finish(world, log)
    outcomes = list(replay(path, builtin()))
    assert sum(outcome.count("Bind") for outcome in outcomes) >= 6
    assert [(o.number, o.difference) for o in outcomes if not o.is_same] == []
    assert log.dropped == 0
    said = CliRunner().invoke(main, ["replay", str(path)])
    assert said.exit_code == 0, said.output
    assert f"{len(outcomes)} cycles, {len(outcomes)} with the same plan" in said.output
    assert "all that kubectl was told" not in json.dumps(lines_of(path))
    assert path.stat().st_mode & 0o077 == 0, "others need not read it"


async def test_each_rotated_log_file_is_complete(world: World, tmp_path: Path) -> None:
    """Tiny files: every cycle starts with a checkpoint, including binds in flight."""
    path = tmp_path / "decisions"
    log = DecisionLog(path, max_bytes=1, max_files=50)
    await a_busy_day(world, log)
    await finish(world, log)
    files = files_in(tmp_path)
    assert len(files) > 5
    for file in files:
        for outcome in replay(file, builtin()):
            assert outcome.difference == [], f"{file.name}, cycle {outcome.number}"


async def test_a_log_keeps_no_more_files_than_it_may(world: World, tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "decisions", max_bytes=1, max_files=3)
    await a_busy_day(world, log)
    await finish(world, log)
    names = sorted(file.name for file in files_in(tmp_path))
    assert names == ["decisions", "decisions.1", "decisions.2"]


@pytest.fixture
async def recorded(world: World, tmp_path: Path) -> Path:
    path = tmp_path / "decisions"
    log = DecisionLog(path)
    await world.scheduler(decision_log=log)
    await world.node("n1", 1)
    await world.node("n2", 1)
    await world.gang("a", 2)
    await world.bound("a-0", "a-1")
    await world.gang("b", 1)
    await world.condition("b", "")
    await finish(world, log)
    return path


def write(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_bytes(gzip.compress(b"".join(json.dumps(line).encode() + b"\n" for line in lines)))


async def test_a_record_that_was_tampered_with_shows_the_difference(recorded: Path) -> None:
    lines = lines_of(recorded)
    binds = [
        (line["number"], effect)
        for line in lines
        if line["type"] == "cycle"
        for effect in line["plan"]["effects"]
        if effect["type"] == "Bind"
    ]
    number, bind = binds[0]
    bind["node"] = {"n1": "n2", "n2": "n1"}[bind["node"]]
    write(recorded, lines)
    said = CliRunner().invoke(main, ["replay", str(recorded), "--cycle", str(number)])
    assert said.exit_code == 1
    assert f"cycle {number}" in said.output
    assert "different plan" in said.output
    assert any(line.strip().startswith("-Bind") for line in said.output.splitlines())
    assert any(line.strip().startswith("+Bind") for line in said.output.splitlines())


async def test_a_replay_can_use_another_configuration(recorded: Path, tmp_path: Path) -> None:
    conf = tmp_path / "idle.conf"
    conf.write_text('actions: "enqueue"\n')
    said = CliRunner().invoke(main, ["replay", str(recorded), "--scheduler-conf", str(conf)])
    assert said.exit_code == 1
    assert "-Bind" in said.output
    assert "+Bind" not in said.output


async def test_a_log_that_ends_in_the_middle_of_a_write_is_read_up_to_there(
    recorded: Path,
) -> None:
    whole = list(replay(recorded, builtin()))
    cut_off(recorded, 20)
    cut = list(replay(recorded, builtin()))
    assert 0 < len(cut) < len(whole)
    assert all(outcome.is_same for outcome in cut)


NO_LOGS = {
    "text": (b"hello", "not a decision log"),
    "no start": (b'{"type":"settled"}\n', "does not begin with a start"),
    "an empty start": (b'{"type":"start"}\n', "not a decision log, or damaged"),
    "an unknown line": (b'{"type":"surprise"}\n', "not a decision log, or damaged"),
}


@pytest.mark.parametrize("case", NO_LOGS)
def test_a_file_that_is_no_log_is_refused(tmp_path: Path, case: str) -> None:
    content, want = NO_LOGS[case]
    path = tmp_path / "x"
    path.write_bytes(content if case == "text" else gzip.compress(content))
    with pytest.raises(ReplayError, match=want):
        list(replay(path, builtin()))
    assert want in CliRunner().invoke(main, ["replay", str(path)]).output


def test_a_failing_disk_loses_cycles_of_the_log_and_nothing_else(tmp_path: Path) -> None:
    from hekla.testing import cluster, gang, node

    log = DecisionLog(tmp_path / "missing" / "decisions")
    plan = cluster([node("n1")], [gang("a")]).run().plan
    assert described(plan).effects
    log.put([Start("0", ("volcano",), "default")], None, None)
    log.close()
    assert log.dropped == 1
    assert log.wants_start

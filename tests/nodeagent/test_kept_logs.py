"""Logs of deleted pods are kept, within bounds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hekla.kube.errors import NotFound
from hekla.kube.resources import NAMESPACES, PODS
from hekla.nodeagent import kept_logs
from hekla.nodeagent.kept_logs import MAX_AGE_S, MAX_TOTAL_BYTES, KeptLogs, KeptPod, expired
from hekla.units.clock import ManualClock
from hekla.units.objects import Object
from tests.nodeagent.conftest import Machine

NOW = 1_700_000_000.0


def kept(name: str, age_s: float, size_bytes: int = 1) -> KeptPod:
    return KeptPod(Path(name), NOW - age_s, size_bytes)


def test_logs_beyond_the_age_are_removed() -> None:
    old, young = kept("old", MAX_AGE_S + 1), kept("young", MAX_AGE_S - 1)
    assert expired([young, old], NOW) == [old]


def test_oldest_logs_beyond_the_total_size_are_removed() -> None:
    third = MAX_TOTAL_BYTES // 3
    pods = [kept(str(age), age, third) for age in (4, 1, 3, 2)]
    assert [pod.path.name for pod in expired(pods, NOW)] == ["4"]


def test_oldest_logs_beyond_the_number_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_logs, "MAX_KEPT_PODS", 2)
    pods = [kept(str(age), age) for age in (1, 3, 2)]
    assert [pod.path.name for pod in expired(pods, NOW)] == ["3"]


def test_logs_of_pods_that_still_exist_count_but_do_not_age() -> None:
    deleted = kept("deleted", 5, MAX_TOTAL_BYTES // 2)
    old = KeptPod(Path("old"), NOW - MAX_AGE_S - 1, MAX_TOTAL_BYTES // 2, is_deleted=False)
    older = KeptPod(Path("older"), NOW - MAX_AGE_S - 2, 1, is_deleted=False)
    assert expired([older, old, deleted], NOW) == [older]


def containers(directory: Path, **logs: str) -> Path:
    for name, text in logs.items():
        container, run = name.split("_")
        (directory / container).mkdir(parents=True, exist_ok=True)
        (directory / container / f"{run}.log").write_text(text)
        (directory / container / f"{run}.exit").write_text("0")
    return directory


def test_kept_logs_are_found_by_run_and_removed_after_their_age(tmp_path: Path) -> None:
    clock = ManualClock()
    logs = KeptLogs(tmp_path / "logs", clock)
    runs = containers(tmp_path / "a", main_9="nine", main_10="ten", s_0="")
    logs.keep("ns", "p", "u-1", runs, owner="job")
    logs.keep("ns", "silent", "u-2", containers(tmp_path / "b", main_0=""))
    last, ninth = logs.find("ns", "p", "u-1", "main"), logs.find("ns", "p", "u-1", "main", 9)
    assert last is not None
    assert ninth is not None
    assert (last.path.read_text(), ninth.path.read_text()) == ("ten", "nine")
    assert logs.find("ns", "p", "u-1", "main", 8) is None
    assert logs.find("ns", "silent", "u-2", "main") is None
    assert logs.last_uid("ns", "p", "job") == "u-1"
    assert logs.last_uid("ns", "p", "another job") is None
    logs.collect_garbage()
    assert logs.last_uid("ns", "p", "job") == "u-1"
    clock.skip(MAX_AGE_S + 1)
    logs.collect_garbage()
    assert not list((tmp_path / "logs").iterdir())


def test_attempts_are_the_runs_of_deleted_pods_of_one_controller(tmp_path: Path) -> None:
    clock = ManualClock()
    logs = KeptLogs(tmp_path / "logs", clock)
    for uid, owner, runs in (
        ("u-2", "job", {"main_0": "one", "main_1": "two"}),
        ("u-3", "another job", {"main_0": "no"}),
        ("u-1", "job", {"main_0": "three"}),
    ):
        clock.skip(1)
        logs.keep("ns", "p", uid, containers(tmp_path / uid, **runs), owner=owner)

    def texts(container: str) -> list[str]:
        found = (logs.find_attempt("ns", "p", "job", container, number) for number in range(5))
        return [log.path.read_text() for log in found if log is not None]

    assert texts("main") == texts("") == ["one", "two", "three"]
    assert texts("..") == texts("other") == []
    assert logs.find_attempt("ns", "p", "", "main", 0) is None
    assert logs.find_attempt("..", "p", "job", "main", 0) is None


def test_logs_of_a_finished_pod_are_removed_beyond_the_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_logs, "MAX_TOTAL_BYTES", 0)
    finished = containers(tmp_path / "containers", main_0="text")
    KeptLogs(tmp_path / "logs", ManualClock()).collect_garbage([finished])
    assert [path.name for path in finished.rglob("*.*")] == ["0.exit"]


@pytest.mark.parametrize("part", ["..", "../pods", "a/b", "", "."])
def test_kept_logs_are_not_read_outside_of_their_directory(tmp_path: Path, part: str) -> None:
    logs = KeptLogs(tmp_path / "logs", ManualClock())
    containers(tmp_path / "logs" / "ns" / "p" / "u", main_0="secret")
    for names in (
        (part, "p", "u", "main"),
        ("ns", part, "u", "main"),
        ("ns", "p", part, "main"),
        ("ns", "p", "u", part),
    ):
        assert logs.find(*names) is None
    assert logs.last_uid(part, "p", "") is None
    assert logs.last_uid("ns", part, "") is None


async def test_output_of_a_deleted_pod_can_be_read_by_its_uid(machine: Machine) -> None:
    await machine.run_pod("p", "sh", "-c", "echo dying words; exit 3")
    uid = (await machine.ended("p"))["metadata"]["uid"]
    await machine.client.delete(PODS, "p", namespace="default", grace_period_s=0)
    assert await machine.logs("p", container="main", uid=uid, run=0) == "dying words\n"
    with pytest.raises(NotFound):
        await machine.logs("p", container="main")
    with pytest.raises(NotFound):
        await machine.logs("other", container="main", uid=uid)
    with pytest.raises(NotFound):
        await machine.logs("p", container="../main", uid=uid)


async def test_recreated_pod_has_the_output_of_the_deleted_one_as_previous(
    machine: Machine,
) -> None:
    def owned_by(uid: str) -> Object:
        owner = {"apiVersion": "example.com/v1", "kind": "Trainer", "name": "t", "uid": uid}
        return {"ownerReferences": [{**owner, "controller": True}]}

    await machine.run_pod("p", "echo", "first", metadata=owned_by("a"))
    first = (await machine.ended("p"))["metadata"]["uid"]
    await machine.client.delete(PODS, "p", namespace="default", grace_period_s=0)
    await machine.run_pod("p", "echo", "second", metadata=owned_by("a"))
    await machine.ended("p")
    assert await machine.logs("p", container="main", uid=first) == "first\n"
    assert await machine.logs("p") == "second\n"
    assert await machine.logs("p", previous=True) == "first\n"
    await machine.client.delete(PODS, "p", namespace="default", grace_period_s=0)
    await machine.run_pod("p", "echo", "third", metadata=owned_by("b"))
    await machine.ended("p")
    assert await machine.logs("p", previous=True) == ""


async def test_follower_gets_the_last_lines_of_a_pod_that_is_deleted(machine: Machine) -> None:
    script = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    await machine.run_pod("p", "sh", "-c", script)
    await machine.running("p")
    text = ""
    async with machine.client.logs("p", namespace="default", follow=True) as lines:
        async for chunk in lines:
            if not text:
                await machine.client.delete(PODS, "p", namespace="default")
            text += chunk.decode()
    assert text.startswith("up\n")
    assert text.endswith("bye\n")


async def test_log_of_a_pod_that_was_deleted_while_no_agent_ran_is_kept(machine: Machine) -> None:
    await machine.run_pod("p", "echo", "unseen")
    uid = (await machine.ended("p"))["metadata"]["uid"]
    await machine.stop_agent()
    await machine.client.delete(PODS, "p", namespace="default", grace_period_s=0)
    machine.start_agent()
    await machine.run_pod("next", "true")
    await machine.ended("next")
    assert await machine.logs("p", container="main", uid=uid) == "unseen\n"


def left_of(machine: Machine, uid: str) -> set[str]:
    directory = machine.directory / "pods" / uid
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


async def test_only_the_record_and_the_runs_of_a_finished_pod_stay(machine: Machine) -> None:
    await machine.run_pod(
        "p", "sh", "-c", "echo x > /scratch/big; echo y > here; echo done",
        container={"volumeMounts": [{"name": "v", "mountPath": "/scratch"}]},
        volumes=[{"name": "v", "emptyDir": {}}],
    )  # fmt: skip
    uid = (await machine.ended("p"))["metadata"]["uid"]
    assert machine.agent is not None
    await asyncio.gather(*machine.agent._tasks.values())
    assert left_of(machine, uid) == {
        "record.json", *(f"containers/main/0.{kind}" for kind in ("log", "exit", "proc", "ready"))
    }  # fmt: skip
    assert {path.name for path in (machine.directory / "pods" / uid).iterdir()} == {
        "record.json",
        "containers",
    }
    assert await machine.logs("p") == "done\n"


async def test_nothing_of_a_deleted_pod_stays_but_its_log(machine: Machine) -> None:
    await machine.client.create(NAMESPACES, {"metadata": {"name": "short"}})
    await machine.run_pod("p", "echo", "x", metadata={"namespace": "short"})
    await machine.ended("p", "short")
    await machine.client.delete(PODS, "p", namespace="short", grace_period_s=0)
    assert machine.agent is not None
    while machine.agent._workers:
        await machine.client.list(PODS)
    await machine.run_pod("last", "true")
    await machine.ended("last")
    assert not (machine.directory / "hosts" / "short").exists()
    assert len(list((machine.directory / "pods").iterdir())) == 1
    assert len(list((machine.directory / "logs").rglob("0.log"))) == 1

"""kill -9 of server, scheduler, controllers and agent, single and together, while fifty jobs run.

Every job must finish, every pod must have run once, and no process, directory or cgroup may be left
on the machine.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tools.kube.processes import free_port
from tools.waiting import until

from hekla.kube import kubeconfig
from hekla.kube.errors import KubeError
from hekla.kube.resources import JOBS, PODS
from hekla.kube.sync_client import SyncClient
from hekla.nodeagent.cgroups import Cgroups
from tests.e2e.test_kills import job

JOB_COUNT, PODS_PER_JOB, KILLS = 50, 2, 14
PARTS = ("server", "scheduler", "controllers", "agent")


class Parts:
    """The cluster as four processes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.config = directory / "state" / "kubeconfig"
        self.log = (directory / "parts.log").open("wb")
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        quiet = ["--leader-elect=false", "--enable-metrics=false", "--enable-healthz=false"]
        component = ["-m", "hekla.cli.main"]
        to = ["--kubeconfig", str(self.config)]
        self._lines = {
            "server": ["-m", "hekla.apiserver", "--data-dir", str(directory / "state"), "--port"],
            "scheduler": [*component, "scheduler", *to, *quiet],
            "controllers": [*component, "controllers", *to, *quiet],
            "agent": ["-m", "tests.e2e.agent", str(self.config), str(directory / "node")],
        }
        self._lines["server"].append(str(free_port()))

    def start(self, part: str) -> None:
        self._running[part] = subprocess.Popen(
            [sys.executable, *self._lines[part]],
            stdout=subprocess.PIPE if part == "server" else self.log,
            stderr=self.log,
            cwd=Path(__file__).parents[2],
        )
        if part == "server":
            output = self._running[part].stdout
            assert output is not None
            assert output.readline(), "the server did not start"

    def kill(self, *parts: str) -> None:
        for part in parts:
            process = self._running.pop(part)
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def restart(self, *parts: str) -> None:
        self.kill(*parts)
        for part in parts:
            self.start(part)

    def close(self) -> None:
        self.kill(*self._running)
        self.log.close()


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    made = Parts(tmp_path)
    for part in PARTS:
        made.start(part)
    yield made
    made.close()


class Seen:
    """The objects of one kind, watched across restarts of the server."""

    def __init__(self, parts: Parts, kind: Any) -> None:
        self._parts, self._kind = parts, kind
        self.objects: dict[str, dict[str, Any]] = {}

    def until(self, holds: Any, patience_s: float = 600.0) -> None:
        """List and watch until the condition holds, also while the server restarts."""
        until(partial(self._watch, holds), patience_s=patience_s, ignored=KubeError)

    def _watch(self, holds: Any) -> bool:
        with SyncClient(kubeconfig.load(self._parts.config)) as client:
            listed = client.list(self._kind)
            self.objects = {one["metadata"]["uid"]: one for one in listed}
            if holds(self.objects.values()):
                return True
            with client.watch(
                self._kind, resource_version=listed.resource_version, timeout_s=20
            ) as events:
                for event in events:
                    self.objects[event.object["metadata"]["uid"]] = event.object
                    if event.type == "DELETED":
                        del self.objects[event.object["metadata"]["uid"]]
                    if holds(self.objects.values()):
                        return True
        return False


def phase(one: dict[str, Any]) -> str:
    status = one.get("status") or {}
    return str(status.get("phase") or (status.get("state") or {}).get("phase") or "")


def ended(objects: Any) -> int:
    return sum(phase(one) in ("Completed", "Failed", "Succeeded") for one in objects)


@pytest.mark.slow
def test_fifty_jobs_finish_while_components_are_killed(parts: Parts, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    draw = random.Random(7)
    with SyncClient(kubeconfig.load(parts.config)) as client:
        for number in range(JOB_COUNT):
            client.create(JOBS, job(number, notes))
    pods = Seen(parts, PODS)
    for turn in range(KILLS):
        # Each component in turn, sometimes all at once, at a random point of progress.
        goal = draw.randint(turn, turn + 1) * JOB_COUNT * PODS_PER_JOB // (KILLS + 2)
        pods.until(lambda seen, goal=goal: ended(seen) >= goal)
        victims = PARTS if turn % 5 == 4 else (PARTS[turn % 4],)
        parts.restart(*victims)
    jobs = Seen(parts, JOBS)
    jobs.until(lambda seen: ended(seen) == JOB_COUNT)
    found = {one["metadata"]["name"]: phase(one) for one in jobs.objects.values()}
    assert found == {f"j{n}": "Failed" if n % 4 == 3 else "Completed" for n in range(JOB_COUNT)}
    runs = {path.name: path.read_text().count("run") for path in notes.iterdir()}
    assert len(runs) == JOB_COUNT * PODS_PER_JOB
    assert set(runs.values()) == {1}, "each pod ran exactly once"

    uids = {path.name for path in (tmp_path / "node" / "pods").iterdir()}
    assert len(uids) == JOB_COUNT * PODS_PER_JOB
    with SyncClient(kubeconfig.load(parts.config)) as client:
        for name in found:
            client.delete(JOBS, name, namespace="default")
    gone = Seen(parts, PODS)
    gone.until(lambda seen: not list(seen))
    parts.restart("agent")  # it cleans up before it starts new pods
    with SyncClient(kubeconfig.load(parts.config)) as client:
        client.create(JOBS, job(1000, notes))
    jobs.until(lambda seen: ended(seen) == 1)
    left = {path.name for path in (tmp_path / "node" / "pods").iterdir()}
    assert not left & uids, "directories"
    assert not uids & set(pods_with_processes()), "processes"
    assert not [uid for uid in uids if Cgroups().of(uid)], "cgroups"


def test_components_wait_for_a_server_that_is_down(parts: Parts, tmp_path: Path) -> None:
    parts.kill("server", "scheduler", "controllers")
    before = (tmp_path / "parts.log").stat().st_size
    parts.start("scheduler")
    parts.start("controllers")
    text = " uses the cluster "
    until(lambda: (tmp_path / "parts.log").read_text()[before:].count(text) == 2)
    parts.start("server")
    with SyncClient(kubeconfig.load(parts.config)) as client:
        client.create(JOBS, job(0, tmp_path))
    Seen(parts, JOBS).until(lambda seen: ended(seen) == 1)


def pods_with_processes() -> Iterator[str]:
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit() and int(directory.name) != os.getpid():
            try:
                variables = (directory / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            for variable in variables:
                if variable.startswith(b"HEKLA_POD_UID="):
                    yield variable.partition(b"=")[2].decode()

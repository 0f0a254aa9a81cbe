"""Misbehaving pods and exhausted resources: clear statuses, and no effect on other pods."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from hekla.apiserver.server import ApiServer, Config
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.resources import PODS
from hekla.nodeagent.cgroups import Cgroups
from hekla.units.objects import Object
from tests.nodeagent.conftest import Machine


def state(pod: Object) -> Object:
    found: Object = pod["status"]["containerStatuses"][0]["state"]
    return found


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Two megabytes."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small tmpfs")
    where = tmp_path / "small"
    where.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(where)], check=True)
    yield where
    subprocess.run(["umount", "-l", str(where)], check=True)


@pytest.fixture
async def cramped(tmp_path: Path, small_disk: Path) -> AsyncIterator[Machine]:
    """A node with an almost full disk."""
    async with (
        ApiServer(Config(data_dir=tmp_path / "data")) as server,
        Client(kubeconfig.load(server.kubeconfig)) as client,
    ):
        made = Machine(server, client, small_disk / "node")
        made.start_agent()
        yield made
        assert made.agent is not None
        await made.agent.abort(0)
        await made.stop_agent()


async def test_full_disk_is_reported_and_pods_start_when_space_is_free(
    cramped: Machine, tmp_path: Path
) -> None:
    full = tmp_path / "full"
    fill = f"dd if=/dev/zero of=big bs=64k count=1000; touch {full}; sleep 1000"
    await cramped.run_pod("filler", "sh", "-c", fill)
    while not full.exists():
        await cramped.client.get(PODS, "filler", namespace="default")
    await cramped.run_pod("late", "echo", "hello")
    held = await cramped.until("late", lambda p: "No space left" in str(p["status"]))
    assert held["status"]["phase"] == "Pending"
    await cramped.client.delete(PODS, "filler", namespace="default", grace_period_s=0)
    assert (await cramped.ended("late"))["status"]["phase"] == "Succeeded"
    assert await cramped.logs("late") == "hello\n"


async def test_fork_bomb_is_stopped_by_the_process_limit_of_its_pod(machine: Machine) -> None:
    if Cgroups().version == 0:
        pytest.skip("needs cgroups that this user may write")
    # It starts far fewer processes than it tries; other pods start all of theirs.
    script = (
        "import os, sys\nmade = 0\n"
        "try:\n    while made < 500:\n"
        "        if os.fork() == 0:\n            import time; time.sleep(1000)\n"
        "        made += 1\n"
        "except OSError as error:\n    print('stopped at', made, error.strerror, flush=True)\n"
        "import time; time.sleep(1000)"
    )
    limit = {"resources": {"limits": {"hekla.io/processes": "20"}}}
    await machine.run_pod("forks", "python3", "-c", script, container=limit)
    await machine.running("forks")
    async with machine.client.logs("forks", namespace="default", follow=True) as chunks:
        said = (await anext(chunks)).decode()
    made = int(said.split()[2])
    assert 5 < made < 20
    assert "temporarily unavailable" in said
    await machine.run_pod("other", "true")
    assert (await machine.ended("other"))["status"]["phase"] == "Succeeded"


async def test_log_with_one_line_of_many_megabytes_is_bounded(machine: Machine) -> None:
    line = "import sys\nfor _ in range(64): sys.stdout.write('x' * (1 << 20))\nprint('end')"
    await machine.run_pod("long", "python3", "-c", line)
    await machine.ended("long")
    size = 0
    tail = b""
    async with machine.client.logs("long", namespace="default") as chunks:
        async for chunk in chunks:
            size += len(chunk)
            tail = (tail + chunk)[-5:]
    assert tail == b"xend\n"
    assert size < 32 << 20
    assert await machine.logs("long", limit_bytes=10) == "x" * 10

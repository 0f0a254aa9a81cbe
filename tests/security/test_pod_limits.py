"""A pod stays within its limits: commands run in it by exec, and its temporary storage."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hekla.nodeagent import ephemeral_storage
from hekla.nodeagent.cgroups import Cgroups
from hekla.nodeagent.ephemeral_storage import is_larger
from tests.nodeagent.conftest import Machine


async def execute(machine: Machine, name: str, *command: str) -> str:
    """Run a command in a pod as `exec` does; return its output."""
    assert machine.agent is not None
    (worker,) = (w for w in machine.agent._workers.values() if w.pod["metadata"]["name"] == name)
    line, variables = await worker.runtime.exec_command("main", list(command))
    import asyncio

    child = await asyncio.create_subprocess_exec(
        *line, env=variables, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await child.communicate()
    return out.decode()


async def test_exec_has_the_rights_and_the_cgroup_of_its_container(shared: Machine) -> None:
    context = {"runAsUser": 1000, "runAsGroup": 1000}
    hostile = [{"name": "PATH", "value": "/evil"}, {"name": "SECRET", "value": "s"}]
    await shared.run_pod(
        "p", "/bin/sleep", "1000", container={"securityContext": context, "env": hostile}
    )
    await shared.running("p")
    script = (
        "PATH=/usr/bin:/bin; grep -h -E '^(Uid|NoNewPrivs|Seccomp|CapEff|CapBnd):' /proc/1/status;"
        "echo; grep -h -E '^(Uid|NoNewPrivs|Seccomp|CapEff|CapBnd):' /proc/self/status; echo;"
        "cat /proc/1/cgroup; echo; cat /proc/self/cgroup; echo; cat /proc/self/uid_map; pwd;"
        "echo $SECRET; unshare -U true || echo refused"
    )
    text = await execute(shared, "p", "/bin/sh", "-c", script)
    first, itself, group, own_group, rest = text.split("\n\n")
    assert first == itself
    assert "Uid:\t1000" in itself
    assert group == own_group
    if Cgroups().version:
        assert "/hekla/" in own_group
    assert "65536" in rest
    assert rest.endswith("refused\n")
    assert "\ns\n" in rest


async def test_exec_ends_with_the_exit_code_of_its_command(shared: Machine) -> None:
    await shared.run_pod("p", "sleep", "1000")
    await shared.running("p")
    assert "no-such-command: not found" in await execute(shared, "p", "no-such-command")
    assert not list(shared.directory.glob("pods/*/containers/*/*.spec")), "holds variables"


async def test_pod_that_exceeds_its_empty_dir_is_evicted(
    shared: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ephemeral_storage, "CHECK_S", 0.05)
    await shared.run_pod(
        "p",
        "sh",
        "-c",
        "head -c 3000000 /dev/zero > /x/f; sleep 1000",
        container={"volumeMounts": [{"name": "x", "mountPath": "/x"}]},
        volumes=[{"name": "x", "emptyDir": {"sizeLimit": "1Mi"}}],
    )
    status = (await shared.ended("p"))["status"]
    assert status["reason"] == "Evicted"
    assert 'Usage of EmptyDir volume "x" exceeds the limit "1Mi".' in status["message"]


async def test_empty_dir_in_memory_has_its_size(shared: Machine) -> None:
    await shared.run_pod(
        "p",
        "sh",
        "-c",
        "stat -f -c %T /x; head -c 3000000 /dev/zero > /x/f || echo full",
        container={"volumeMounts": [{"name": "x", "mountPath": "/x"}]},
        volumes=[{"name": "x", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}],
    )
    pod = await shared.ended("p")
    text = await shared.logs("p")
    assert text.startswith("tmpfs\n")
    assert text.endswith("full\n")
    directory = shared.directory / "pods" / pod["metadata"]["uid"]
    assert f"{directory}/" not in Path("/proc/self/mountinfo").read_text()  # noqa: ASYNC240


def test_usage_counts_blocks_once_and_follows_no_links(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    file = tmp_path / "a" / "f"
    file.write_bytes(b"x" * 100_000)
    os.link(file, tmp_path / "a" / "again")
    (tmp_path / "link").symlink_to("/usr")
    assert is_larger(tmp_path, 90_000)
    assert not is_larger(tmp_path, 130_000)
    for number in range(1000):
        (tmp_path / str(number)).touch()
    assert is_larger(tmp_path, 300_000), "empty files are not free"

"""`hekla run` shows all output and the exit code of its jobs, in any order of events."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click import ClickException

from hekla.apiserver.server import ApiServer, Config
from hekla.cli import job_follower
from hekla.cli.job_follower import Aborted, JobFollower
from hekla.cli.job_scope import JobScope
from hekla.cli.object_sender import ObjectSender
from hekla.cli.progress import Jobs, PlainScreen
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.resources import EVENTS, JOBS, NODES, PODGROUPS, PODS, Resource
from tests.cli.conftest import job

NODE = "n1"


class OutputNode:
    """A node whose pods all have the same output."""

    async def logs(self, pod: dict[str, Any], request: Any) -> AsyncIterator[bytes]:
        yield b"my last words\n"


class DelayedPodWatch(Client):
    """Watches jobs normally, but sees pods only in a second list."""

    has_asked = False

    def pages(self, resource: Resource[Any], **more: Any) -> Any:
        if resource.kind == PODS.kind and not self.has_asked:
            self.has_asked = True
            return silence()
        return super().pages(resource, **more)


async def silence() -> AsyncIterator[Any]:
    await asyncio.Event().wait()
    yield


class NotifyingScreen(PlainScreen):
    """Notifies the test of the first change."""

    def __init__(self, jobs: Jobs) -> None:
        super().__init__(jobs)
        self.submitted = asyncio.Event()
        self._changed = asyncio.Event()

    def changed(self) -> None:
        super().changed()
        self.submitted.set()
        self._changed.set()

    async def next_change(self) -> None:
        await self._changed.wait()
        self._changed.clear()


async def failed_pod(client: Client, of: dict[str, Any]) -> None:
    await pod_of(client, of)
    ended = {"name": "main", "state": {"terminated": {"exitCode": 7}}}
    status = {"phase": "Failed", "containerStatuses": [ended]}
    await client.patch_status(PODS, "quick-worker-0", status, namespace="default")


async def pod_of(client: Client, of: dict[str, Any]) -> None:
    owner = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": of["metadata"]["name"],
        "uid": of["metadata"]["uid"],
        "controller": True,
    }
    metadata = {
        "name": "quick-worker-0",
        "namespace": "default",
        "labels": {"volcano.sh/job-name": "quick"},
        "ownerReferences": [owner],
    }
    spec = {
        "nodeName": NODE,
        "initContainers": [{"name": "setup", "image": "host"}],
        "containers": [{"name": "main", "image": "host"}],
    }
    await client.create(PODS, {"metadata": metadata, "spec": spec})


async def test_output_and_exit_code_are_complete_when_the_pod_watch_lags(
    tmp_path: Path, capsys: Any
) -> None:
    async with ApiServer(Config(data_dir=tmp_path)) as server:
        server.nodes.register(NODE, OutputNode())  # type: ignore[arg-type]
        config = kubeconfig.load(server.kubeconfig)
        async with Client(config) as client, DelayedPodWatch(config) as deaf:
            await client.create(NODES, {"metadata": {"name": NODE}})
            jobs = Jobs()
            screen = NotifyingScreen(jobs)
            follower = JobFollower(deaf, screen, jobs)
            quick = job("quick")
            quick["metadata"]["namespace"] = "default"
            running = asyncio.create_task(follower.run([quick]))
            async with asyncio.timeout(60):
                await screen.submitted.wait()
                await failed_pod(client, await client.get(JOBS, "quick", namespace="default"))
                over = {"state": {"phase": "Failed"}}
                await client.patch_status(JOBS, "quick", over, namespace="default")
                assert not await running
    assert follower.exit_code == 7
    lines = capsys.readouterr().out.splitlines()
    assert lines.count("quick-worker-0 | my last words") == 1
    assert lines[-3:] == [
        "job quick ended as Failed",
        "  pod quick-worker-0: container main exited with code 7",
        "  next: `hekla explain quick`, `hekla job logs quick`, `hekla job retry quick`",
    ]


async def test_the_reason_of_a_pending_pod_and_output_that_was_not_shown_are_printed(
    tmp_path: Path, capsys: Any
) -> None:
    """The output of an init container is not followed, so the end of it is read after a failure."""
    async with ApiServer(Config(data_dir=tmp_path)) as server:
        server.nodes.register(NODE, OutputNode())  # type: ignore[arg-type]
        config = kubeconfig.load(server.kubeconfig)
        async with Client(config) as client, Client(config) as following:
            await client.create(NODES, {"metadata": {"name": NODE}})
            jobs = Jobs()
            screen = NotifyingScreen(jobs)
            quick = job("quick")
            quick["metadata"]["namespace"] = "default"
            running = asyncio.create_task(JobFollower(following, screen, jobs).run([quick]))
            async with asyncio.timeout(60):
                await screen.submitted.wait()
                await pod_of(client, await client.get(JOBS, "quick", namespace="default"))
                waiting = {"waiting": {"reason": "ImageNotMapped", "message": "no such image"}}
                await set_init_state(client, "Pending", waiting)
                while "ImageNotMapped" not in capsys.readouterr().out:
                    await screen.next_change()
                await set_init_state(client, "Failed", {"terminated": {"exitCode": 4}})
                over = {"state": {"phase": "Failed"}}
                await client.patch_status(JOBS, "quick", over, namespace="default")
                assert not await running
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("quick-worker-0/setup | my last words")
    assert lines[at - 1] == "the last lines of pod quick-worker-0, container setup:"
    assert "  pod quick-worker-0: container setup exited with code 4" in lines


async def test_an_interrupt_ends_the_run_of_a_flow_that_cannot_continue(
    tmp_path: Path, capsys: Any
) -> None:
    """It has no job that could be aborted, and waited forever."""
    flow = {
        "apiVersion": "flow.volcano.sh/v1alpha1",
        "kind": "JobFlow",
        "metadata": {"name": "f", "namespace": "default"},
        "spec": {"jobRetainPolicy": "retain", "flows": [{"name": "missing"}]},
    }
    async with (
        ApiServer(Config(data_dir=tmp_path)) as server,
        Client(kubeconfig.load(server.kubeconfig)) as client,
    ):
        screen = NotifyingScreen(jobs := Jobs())
        running = asyncio.create_task(JobFollower(client, screen, jobs).run([flow]))
        async with asyncio.timeout(60):
            await screen.submitted.wait()
            (uid,) = jobs.flows
            about = {"kind": "JobFlow", "name": "f", "namespace": "default", "uid": uid}
            event = {"type": "Warning", "reason": "MissingTemplate", "message": "no template"}
            metadata = {"name": "f.1", "namespace": "default"}
            await client.create(EVENTS, {"metadata": metadata, "involvedObject": about, **event})
            while "jobflow f: MissingTemplate: no template" not in capsys.readouterr().out:
                await screen.next_change()
            os.kill(os.getpid(), signal.SIGINT)
            with pytest.raises(Aborted):
                await running
    assert "`vcctl jobflow delete -N f -n default` deletes it" in capsys.readouterr().out


async def test_a_job_that_somebody_deleted_gets_no_hints_that_need_it(
    tmp_path: Path, capsys: Any
) -> None:
    async with (
        ApiServer(Config(data_dir=tmp_path)) as server,
        Client(kubeconfig.load(server.kubeconfig)) as client,
    ):
        screen = NotifyingScreen(jobs := Jobs())
        quick = job("quick")
        quick["metadata"]["namespace"] = "default"
        follower = JobFollower(client, screen, jobs)
        running = asyncio.create_task(follower.run([quick]))
        async with asyncio.timeout(60):
            await screen.submitted.wait()
            await client.delete(JOBS, "quick", namespace="default")
            assert not await running
    assert len(follower.deleted) == 1
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "job quick was deleted by somebody before it had ended",
        "  next: `hekla history quick` shows its record",
        "job quick: Terminated",
    ]


class RecordingClient(Client):
    """Records what is watched."""

    def watch(self, resource: Resource[Any], **more: Any) -> Any:
        self.watched = {**getattr(self, "watched", {}), resource.kind: more}
        return super().watch(resource, **more)


async def test_one_job_is_watched_without_the_other_jobs_of_its_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_follower, "MAX_GROUPS", 1)
    async with (
        ApiServer(Config(data_dir=tmp_path)) as server,
        RecordingClient(kubeconfig.load(server.kubeconfig)) as client,
    ):
        for name in ("a", "b"):
            group = {"metadata": {"name": name}, "spec": {"queue": "default", "minMember": 1}}
            await client.create(PODGROUPS, group, namespace="default")
        screen = NotifyingScreen(jobs := Jobs())
        quick = job("quick")
        quick["metadata"]["namespace"] = "default"
        running = asyncio.create_task(JobFollower(client, screen, jobs).run([quick]))
        async with asyncio.timeout(60):
            await screen.submitted.wait()
            over = {"state": {"phase": "Completed"}}
            await client.patch_status(JOBS, "quick", over, namespace="default")
            assert await running
    selectors = {
        kind: (more["label_selector"], more["field_selector"])
        for kind, more in client.watched.items()
    }
    ((uid, _),) = jobs.followed.items()
    assert selectors["Pod"] == ("volcano.sh/job-name=quick", "")
    assert selectors["Job"] == ("", "metadata.name=quick")
    assert selectors["PodGroup"] == ("", f"metadata.name=quick-{uid}")
    assert selectors["Event"] == ("", "type=Warning")
    assert not jobs.has_all_groups


def test_selectors_of_several_jobs_name_them_up_to_a_number() -> None:
    def scope(count: int) -> JobScope:
        return JobScope([{"metadata": {"name": f"j{number}"}} for number in range(count)])

    assert scope(2).pod_labels == "volcano.sh/job-name in (j0,j1)"
    assert (scope(2).job_field, scope(2).group_field) == ("", "")
    assert scope(100).pod_labels == scope(0).pod_labels == "volcano.sh/job-name"


async def set_init_state(client: Client, phase: str, state: dict[str, Any]) -> None:
    status = {"phase": phase, "initContainerStatuses": [{"name": "setup", "state": state}]}
    await client.patch_status(PODS, "quick-worker-0", status, namespace="default")


UNKNOWN = {
    "a version": ("batch.volcano.sh/v1", "Job", "it serves Job in batch.volcano.sh/v1alpha1, batc"),
    "a kind": ("apps/v1", "Deploymnt", "did you mean Deployment in apps/v1?"),
    "nothing like it": ("x.io/v1", "Zzzz", "`kubectl api-resources` lists its kinds"),
}


async def test_an_unknown_kind_or_version_is_answered_with_those_that_are_served(
    tmp_path: Path,
) -> None:
    async with (
        ApiServer(Config(data_dir=tmp_path)) as server,
        Client(kubeconfig.load(server.kubeconfig)) as client,
    ):
        for version, kind, want in UNKNOWN.values():
            obj = {"apiVersion": version, "kind": kind, "metadata": {"name": "a"}}
            with pytest.raises(ClickException, match=re.escape(want)):
                await ObjectSender(client).send(obj)

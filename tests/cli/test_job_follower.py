"""`hekla run` shows all output and the exit code of its jobs, in any order of events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from hekla.apiserver.server import ApiServer, Config
from hekla.cli.job_follower import JobFollower
from hekla.cli.progress import Jobs, PlainScreen
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.resources import JOBS, NODES, PODS, Resource
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

    def changed(self) -> None:
        super().changed()
        self.submitted.set()


async def failed_pod(client: Client, of: dict[str, Any]) -> None:
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
    spec = {"nodeName": NODE, "containers": [{"name": "main", "image": "host"}]}
    await client.create(PODS, {"metadata": metadata, "spec": spec})
    ended = {"name": "main", "state": {"terminated": {"exitCode": 7}}}
    status = {"phase": "Failed", "containerStatuses": [ended]}
    await client.patch_status(PODS, "quick-worker-0", status, namespace="default")


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
    assert "quick-worker-0 | my last words" in capsys.readouterr().out

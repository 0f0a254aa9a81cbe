"""Fixtures: the embedded API server, and an agent that runs pods as processes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from hekla.apiserver.server import ApiServer, Config
from hekla.images.store import ImageStore
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.resources import PODS
from hekla.nodeagent import sandbox
from hekla.nodeagent.agent import Agent
from hekla.nodeagent.images import Images, ImageTable
from hekla.nodeagent.network import BridgeNetwork
from hekla.nodeagent.security_context import PodUser
from hekla.units.objects import Object
from tests.images.conftest import lying, real  # noqa: F401  fixtures
from tests.images.conftest import skopeo as skopeo_program

NODE = "box"
skopeo = skopeo_program


class Machine:
    """A node: the agent can be restarted, its directory and the API server stay."""

    def __init__(self, server: ApiServer, client: Client, directory: Path) -> None:
        self.server = server
        self.client = client
        self.directory = directory
        self.hidden: Path | None = None
        self.agent: Agent | None = None
        self._task: asyncio.Task[None] | None = None

    def start_agent(
        self,
        *,
        isolate: sandbox.Isolation | None = None,
        network: BridgeNetwork | None = None,
        gpus: int = 0,
        cpu_policy: str = "none",
        pod_user: PodUser = "owner",
        images: ImageTable | None = None,
        image_store: ImageStore | None = None,
        skopeo_path: str = "skopeo",
        cdi_directories: Sequence[Path] = (),
    ) -> None:
        self.agent = Agent(
            self.client,
            NODE,
            self.directory,
            images=images or Images(),
            image_store=image_store,
            skopeo=skopeo_path,
            isolate=isolate,
            network=network,
            simulated_gpus=gpus,
            cpu_policy=cpu_policy,
            pod_user=pod_user,
            hidden=self.hidden,
            cdi_directories=cdi_directories,
        )
        self.server.nodes.register(NODE, self.agent)
        self._task = asyncio.create_task(self.agent.run())

    async def stop_agent(self) -> None:
        """Stop the agent; its pods continue."""
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._task = None

    async def run_pod(self, name: str, *command: str, **spec: Any) -> None:
        """Create a pod and bind it to this node."""
        metadata = {"name": name, "namespace": "default", **spec.pop("metadata", {})}
        namespace = metadata["namespace"]
        container: Object = {"name": "main", "image": "host", "command": list(command)}
        container.update(spec.pop("container", {}))
        body = {
            "metadata": metadata,
            "spec": {"restartPolicy": "Never", "containers": [container], **spec},
        }
        await self.client.create(PODS, body)
        await self.client.bind(name, NODE, namespace=namespace)

    async def until(
        self, name: str, holds: Callable[[Object], bool], namespace: str = "default"
    ) -> Object:
        """Return the pod once a condition holds."""
        last: Object = {}
        async with (
            asyncio.timeout(120),
            self.client.watch(
                PODS, namespace=namespace, field_selector=f"metadata.name={name}"
            ) as events,
        ):
            async for event in events:
                last = event.object
                if event.type == "DELETED" or holds(last):
                    return last
        raise AssertionError(f"timed out: {last}")

    async def ended(self, name: str, namespace: str = "default") -> Object:
        return await self.until(
            name, lambda p: p["status"]["phase"] in ("Succeeded", "Failed"), namespace
        )

    async def running(self, name: str, namespace: str = "default") -> Object:
        return await self.until(name, lambda p: p["status"]["phase"] == "Running", namespace)

    async def logs(self, name: str, namespace: str = "default", **options: Any) -> str:
        async with self.client.logs(name, namespace=namespace, **options) as chunks:
            return b"".join([chunk async for chunk in chunks]).decode()


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    async with (
        ApiServer(Config(data_dir=tmp_path / "data")) as server,
        Client(kubeconfig.load(server.kubeconfig)) as client,
    ):
        made = Machine(server, client, tmp_path / "node")
        made.start_agent()
        yield made
        if made._task is not None:
            assert made.agent is not None
            await made.agent.abort(0)
            await made.stop_agent()


@pytest.fixture
def isolation() -> None:
    """Skip a test if namespaces are not available."""
    support = sandbox.isolation_support()
    if not support.namespaces:
        pytest.skip(f"needs mount, uts and pid namespaces: {support.reason}")


def state(pod: Object, name: str = "main") -> Object:
    statuses = pod["status"]["containerStatuses"] + (
        pod["status"].get("initContainerStatuses") or []
    )
    found: Object = next(s for s in statuses if s["name"] == name)
    return found

"""Single-machine mode: the one place that wires server, scheduler, controllers and agent."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import platform
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hekla.api import wellknown
from hekla.apiserver.server import ApiServer, Config
from hekla.apiserver.storage.store import Durability
from hekla.controllers.runner import WORKLOADS, Controllers
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.nodeagent.agent import Agent
from hekla.nodeagent.images import Images
from hekla.nodeagent.network import BridgeNetwork
from hekla.nodeagent.network import ways as network_ways
from hekla.nodeagent.simulated import SimulatedNodes
from hekla.scheduler.service.service import Scheduler

log = logging.getLogger("hekla.local")

PodNetwork = Literal["auto", "bridge", "host"]

SCHEDULES_FOR = (wellknown.DEFAULT_SCHEDULER, wellknown.KUBERNETES_SCHEDULER)
"""There is no other scheduler here: a pod that names Kubernetes' own would wait for ever."""

RESTART_AFTER_S = 1.0
STOP_GRACE_S = 5.0


@dataclass
class LocalConfig:
    data_dir: Path
    port: int = 0
    agent: bool = True
    host_images: bool = False
    """Run images nobody has mapped on the host."""
    pod_network: PodNetwork = "auto"
    simulated_nodes: int = 0
    simulated_gpus: int = 0
    """Devices this machine pretends to have."""
    cpu_manager_policy: str = "none"
    topology_manager_policy: str = "none"
    """As kubelet's: whether pods get CPUs of their own, and how close together these must be."""
    durability: Durability = "process"


def images_path() -> Path:
    """The user's table of images."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "hekla" / "images.toml"


def _wants_bridge(choice: PodNetwork) -> bool:
    """`auto` gives pods a network of their own where that costs them nothing."""
    return choice == "bridge" or (choice == "auto" and network_ways().bridge)


def node_name() -> str:
    """This machine's name in a form that a node may have."""
    name = platform.node().split(".")[0].lower()
    return "".join(c if c.isalnum() else "-" for c in name).strip("-") or "local"


@contextlib.asynccontextmanager
async def cluster(config: LocalConfig) -> AsyncIterator[ApiServer]:
    """A running cluster; everything ends with the block."""
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            ApiServer(
                Config(data_dir=config.data_dir, port=config.port, durability=config.durability)
            )
        )
        target = kubeconfig.load(server.kubeconfig)

        async def client(component: str) -> Client:
            return await stack.enter_async_context(
                Client(target, component=component, dial=server.dial)
            )

        controllers = Controllers(
            await client("controllers"), select=("*", *WORKLOADS), schedulers=SCHEDULES_FOR
        )
        parts = {
            "scheduler": Scheduler(await client("scheduler"), names=SCHEDULES_FOR).run,
            "controllers": controllers.run,
        }
        if config.agent:
            agent = Agent(
                await client("agent"),
                node_name(),
                config.data_dir / "node",
                images=Images.load(images_path(), host_images=config.host_images),
                network=BridgeNetwork(config.data_dir)
                if _wants_bridge(config.pod_network)
                else None,
                simulated_gpus=config.simulated_gpus,
                cpu_policy=config.cpu_manager_policy,
                topology_policy=config.topology_manager_policy,
            )
            server.nodes.register(agent.node, agent)
            parts["agent"] = agent.run
        if config.simulated_nodes:
            simulated = SimulatedNodes(await client("simulated-nodes"), config.simulated_nodes)
            parts["simulated nodes"] = simulated.run
            for name in simulated.names:
                server.nodes.register(name, simulated)
        tasks = [asyncio.create_task(_keep_running(name, part)) for name, part in parts.items()]
        stack.push_async_callback(_cancel, tasks)
        if config.agent:
            stack.push_async_callback(agent.drain, STOP_GRACE_S)
        yield server


async def _keep_running(name: str, part: Callable[[], Awaitable[None]]) -> None:
    """A part that fails is reported and started again: one bug must not end the cluster."""
    while True:
        try:
            await part()
        except Exception:
            log.exception("%s failed; starting it again", name)
            await asyncio.sleep(RESTART_AFTER_S)


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

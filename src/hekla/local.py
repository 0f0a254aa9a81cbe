"""Single-machine mode: runs API server, scheduler, controllers and node agent in one process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import platform
import pwd
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from hekla.api import wellknown
from hekla.api.volcano.jobs import MAX_REPLICAS_LOCAL
from hekla.apiserver.server import ApiServer, Config
from hekla.apiserver.storage.store import Durability
from hekla.controllers.runner import EMBEDDED, WORKLOADS, Controllers
from hekla.images.store import ImageStore
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.nodeagent.agent import Agent
from hekla.nodeagent.gone_nodes import remove_gone_nodes
from hekla.nodeagent.images import ImagesFile
from hekla.nodeagent.network import BridgeNetwork, network_support
from hekla.nodeagent.sandbox import isolation_support
from hekla.nodeagent.security_context import PodUser
from hekla.nodeagent.simulated import SimulatedNodes
from hekla.nodeagent.uid_ranges import user_namespace_support
from hekla.records.store import HISTORY_FILE, MAX_AGE_DAYS, MAX_JOBS, HistoryStore
from hekla.scheduler.errors import ConfigError
from hekla.scheduler.framework.config import parse
from hekla.scheduler.framework.registry import Registry
from hekla.scheduler.plugins.discovery import discover
from hekla.scheduler.service.scheduler import Scheduler
from hekla.web.stalls import watch_stalls

log = logging.getLogger("hekla.local")

PodNetwork = Literal["auto", "bridge", "host"]
PodUserChoice = Literal["auto", "namespace", "owner"]

IMAGES_DIRECTORY = "images"
"""The store of images, below the data directory."""
DEFAULT_STORE_BYTES = 50 << 30
RESTART_AFTER_S = 1.0
ABORT_GRACE_S = 5.0
SHUTDOWN_GRACE_S = 30.0
"""The longest time that a pod gets to end when the cluster stops; its own may be shorter."""


class PodUserError(OSError):
    """Pods cannot run as the chosen user."""


class Shutdown:
    """How a cluster stops: its pods are suspended until the next start, or end with it."""

    def __init__(self, *, aborts: bool) -> None:
        self.aborts = aborts
        self.scheduler: asyncio.Task[None] | None = None
        self.nodes: list[Agent | SimulatedNodes] = []

    async def finish_pods(self) -> None:
        """Start no more pods, and wait until those that run have finished."""
        if self.scheduler is not None:
            self.scheduler.cancel()
        await asyncio.gather(*(node.finish_pods() for node in self.nodes))


@dataclass
class LocalConfig:
    data_dir: Path
    port: int = 0
    else_any_port: bool = False
    """Whether a free port replaces one that is taken."""
    agent: bool = True
    host_images: bool = False
    """Run images without a mapping on the host."""
    pod_network: PodNetwork = "auto"
    pod_user: PodUserChoice = "auto"
    simulated_nodes: int = 0
    simulated_gpus: int = 0
    """Number of simulated GPUs on this machine."""
    plugins_dir: Path | None = None
    """Directory of Python files with custom plugins of the scheduler."""
    cpu_manager_policy: str = "none"
    topology_manager_policy: str = "none"
    """As kubelet's flags: exclusive CPUs for Guaranteed pods, and their NUMA alignment."""
    durability: Durability = "process"
    multi_user: bool = False
    """Users are kept apart: submitting to a queue needs a right on it."""
    max_pods_per_job: int = MAX_REPLICAS_LOCAL
    """Larger jobs are refused."""
    history_jobs: int = MAX_JOBS
    history_days: int = MAX_AGE_DAYS
    """How many ended jobs the history keeps, and for how long."""
    image_store_bytes: int = DEFAULT_STORE_BYTES
    """Images used longest ago are deleted above it."""


def images_path() -> Path:
    """Return the path of the user's image mapping."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "hekla" / "images.toml"


def _wants_bridge(choice: PodNetwork) -> bool:
    """Return whether to create a bridge; `auto` does so where the machine supports it."""
    return choice == "bridge" or (choice == "auto" and network_support().bridge)


def pod_user(choice: PodUserChoice) -> PodUser:
    """Return who pods run as; `auto` is their namespace where the machine supports it."""
    if choice == "owner":
        return "owner"
    reason = user_namespace_support()
    if not reason and isolation_support().isolation != "root":
        reason = isolation_support().reason or "mount and PID namespaces are required"
    if not reason:
        return "namespace"
    if choice == "namespace":
        raise PodUserError(
            f"--pod-user namespace is not possible here: {reason}; "
            "run `hekla up` as root, or use --pod-user owner"
        )
    return "owner"


def node_name() -> str:
    """Return this machine's name as a valid node name."""
    name = platform.node().split(".")[0].lower()
    return "".join(c if c.isalnum() else "-" for c in name).strip("-") or "local"


@contextlib.asynccontextmanager
async def cluster(
    config: LocalConfig, shutdown: Shutdown | None = None
) -> AsyncIterator[ApiServer]:
    """Run a cluster inside the block. By default its pods end with it."""
    shutdown = shutdown or Shutdown(aborts=True)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(watch_stalls())
        registry = discover(config.plugins_dir)
        history = _history(config)
        stack.callback(history.close)
        server = await stack.enter_async_context(
            ApiServer(
                Config(
                    data_dir=config.data_dir,
                    port=config.port,
                    else_any_port=config.else_any_port,
                    durability=config.durability,
                    queue_access=config.multi_user,
                    max_pods_per_job=config.max_pods_per_job,
                    history=history,
                    scheduler_config_problem=partial(configuration_problem, registry),
                )
            )
        )
        target = kubeconfig.load(server.kubeconfig)

        async def client(component: str) -> Client:
            return await stack.enter_async_context(
                Client(target, component=component, dial=server.dial)
            )

        controllers = Controllers(
            await client("controllers"),
            select=("*", *WORKLOADS, *EMBEDDED),
            schedulers=wellknown.LOCAL_SCHEDULERS,
            history=history,
        )
        components = {
            "scheduler": Scheduler(
                await client("scheduler"), names=wellknown.LOCAL_SCHEDULERS, registry=registry
            ).run,
            "controllers": controllers.run,
        }
        present: list[str] = []
        if config.agent:
            store = ImageStore(
                config.data_dir / IMAGES_DIRECTORY, limit_bytes=config.image_store_bytes
            )
            stack.callback(store.close)
            agent = _agent(config, await client("agent"), store)
            server.nodes.register(agent.node, agent)
            present.append(agent.node)
            components["agent"] = agent.run
        if config.simulated_nodes:
            simulated = SimulatedNodes(await client("simulated-nodes"), config.simulated_nodes)
            components["simulated nodes"] = simulated.run
            for name in simulated.names:
                server.nodes.register(name, simulated)
            present += simulated.names
        await remove_gone_nodes(await client("node-removal"), present)
        tasks = {
            name: asyncio.create_task(_keep_running(name, run)) for name, run in components.items()
        }
        shutdown.scheduler = tasks["scheduler"]
        stack.push_async_callback(_cancel, list(tasks.values()))
        if config.agent:
            shutdown.nodes.append(agent)
            stack.push_async_callback(_stop_pods, agent, shutdown)
        if config.simulated_nodes:
            shutdown.nodes.append(simulated)
        yield server


async def _stop_pods(agent: Agent, shutdown: Shutdown) -> None:
    if shutdown.aborts:
        await agent.abort(ABORT_GRACE_S)
    else:
        await agent.suspend(SHUTDOWN_GRACE_S)


def configuration_problem(registry: Registry, text: str) -> str:
    """Return why the scheduler would refuse a configuration; empty if it would not."""
    try:
        parse(text, registry)
    except ConfigError as error:
        return str(error)
    return ""


def _history(config: LocalConfig) -> HistoryStore:
    return HistoryStore(
        config.data_dir / HISTORY_FILE,
        max_jobs=config.history_jobs,
        max_age_days=config.history_days,
        # Only this user and root can read the kubeconfig: the jobs are theirs.
        default_user="" if config.multi_user else _user_name(),
    )


def _user_name() -> str:
    """Return the name of the user who runs the cluster."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container whose user is in no passwd file
        return str(os.geteuid())


def _agent(config: LocalConfig, client: Client, store: ImageStore) -> Agent:
    return Agent(
        client,
        node_name(),
        config.data_dir / "node",
        images=ImagesFile(images_path(), host_images=config.host_images),
        image_store=store,
        network=BridgeNetwork(config.data_dir) if _wants_bridge(config.pod_network) else None,
        pod_user=pod_user(config.pod_user),
        hidden=config.data_dir,
        labels={wellknown.LOCAL_NODE: "true"},
        simulated_gpus=config.simulated_gpus,
        cpu_policy=config.cpu_manager_policy,
        topology_policy=config.topology_manager_policy,
    )


async def _keep_running(name: str, run: Callable[[], Awaitable[None]]) -> None:
    """Run a component forever; log a failure and restart it, so that one bug does not end the
    cluster.
    """
    while True:
        try:
            await run()
        except Exception:
            log.exception("%s failed; restarting it", name)
            await asyncio.sleep(RESTART_AFTER_S)


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

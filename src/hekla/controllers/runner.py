"""The controllers as a running part: one set of watches, the controllers that were asked for.

await Controllers(client).run()                                  # all of them, until cancelled
await Controllers(client, select=["*", "-gc-controller"]).run()
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from hekla.api import wellknown
from hekla.controllers.command import CommandController
from hekla.controllers.cronjob import CronJobController
from hekla.controllers.flowcontroller import JobFlowController
from hekla.controllers.gc import GarbageController
from hekla.controllers.hypernode import HyperNodeController
from hekla.controllers.job.controller import JobController
from hekla.controllers.jobtemplate import JobTemplateController
from hekla.controllers.metrics import Metrics
from hekla.controllers.podgroup import PodGroupController
from hekla.controllers.queue import QueueController
from hekla.controllers.watched import Watched, World
from hekla.controllers.workloads.cronjob import BatchCronJobController
from hekla.controllers.workloads.deployment import DeploymentController
from hekla.controllers.workloads.endpoints import EndpointsController
from hekla.controllers.workloads.jobcontroller import BatchJobController
from hekla.controllers.workloads.replicaset import ReplicaSetController, ReplicationControllers
from hekla.controllers.workloads.statefulset import StatefulSetController
from hekla.kube.client import Client
from hekla.kube.recorder import EventRecorder
from hekla.kube.resources import JOBS
from hekla.units.clock import Clock, SystemClock

log = logging.getLogger("hekla.controllers")

LEASE: Final = "vc-controller-manager"


class Controller(Protocol):
    """Something that works while the world is watched."""

    workers: int

    async def run(self) -> None: ...


Builder = Callable[[World, EventRecorder, Metrics], Controller]

BUILDERS: Final[dict[str, Builder]] = {
    "job-controller": JobController,
    "queue-controller": QueueController,
    "command-controller": CommandController,
    "cronjob-controller": CronJobController,
    "pg-controller": PodGroupController,
    "gc-controller": GarbageController,
    "jobflow-controller": JobFlowController,
    "jobtemplate-controller": JobTemplateController,
    "hyperNode-controller": HyperNodeController,
}

WORKLOADS: Final[dict[str, Builder]] = {
    "replicaset-controller": ReplicaSetController,
    "replicationcontroller-controller": ReplicationControllers,
    "deployment-controller": DeploymentController,
    "statefulset-controller": StatefulSetController,
    "batchjob-controller": BatchJobController,
    "batchcronjob-controller": BatchCronJobController,
    "endpoints-controller": EndpointsController,
}
"""Kubernetes' own; off unless named: where there is a kube-controller-manager, it does this."""


def selected(asked: Sequence[str]) -> list[str]:
    """The controllers that `--controllers` names: `*` for all, `-x` without, `x` or `+x` with.

    `*` does not stand for those of Kubernetes' own workloads: they must be named.
    """
    known = [*BUILDERS, *WORKLOADS]
    for word in asked:
        if word != "*" and word.lstrip("+-") not in known:
            raise ValueError(f"no controller {word.lstrip('+-')!r}; there are {', '.join(known)}")
    everything = not asked or "*" in asked
    chosen = {name for name in BUILDERS if everything}
    chosen |= {word.lstrip("+") for word in asked if word != "*" and not word.startswith("-")}
    chosen -= {word[1:] for word in asked if word.startswith("-")}
    return [name for name in known if name in chosen]


class Controllers:
    """All controllers on one client."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock | None = None,
        select: Sequence[str] = ("*",),
        workers: Mapping[str, int] | None = None,
        schedulers: Sequence[str] = (wellknown.DEFAULT_SCHEDULER,),
        metrics: Metrics | None = None,
        recorder_client: Client | None = None,
        gather_counts_s: float | None = None,
    ) -> None:
        """`workers` says of how many objects a controller looks after at once; pods that belong to
        no group get one if they name one of `schedulers`.
        """
        self._client = client
        self._clock: Clock = clock or SystemClock()
        self._names = selected(select)
        self._workers = workers or {}
        self._builders: dict[str, Builder] = {
            **BUILDERS,
            **WORKLOADS,
            PodGroupController.name: partial(PodGroupController, schedulers=tuple(schedulers)),
        }
        self._recorder_client = recorder_client or client
        self._gather_counts_s = gather_counts_s
        self.metrics = metrics or Metrics()
        self.controllers: dict[str, Controller] = {}
        self._needs: dict[str, list[Watched]] = {}

    async def run(self) -> None:
        """Until cancelled."""
        world = World(self._client, self._clock)
        recorder = EventRecorder(
            self._recorder_client, component=wellknown.CONTROLLER_COMPONENT, clock=self._clock
        )
        self.controllers, self._needs = {}, {}
        for name in self._names:
            self.controllers[name] = self._builders[name](world, recorder, self.metrics)
            self._needs[name] = world.asked_for()
            if name in self._workers:
                self.controllers[name].workers = self._workers[name]
        jobs = self.controllers.get("job-controller")
        if isinstance(jobs, JobController) and self._gather_counts_s is not None:
            jobs.gather_counts_for(self._gather_counts_s)
        async with recorder, world.running(), asyncio.TaskGroup() as group:
            for name, controller in self.controllers.items():
                group.create_task(_run_when_ready(controller, self._needs[name]), name=name)

    def what_is_missing(self) -> str:
        """Kinds that have not been seen yet; controllers that need them do not act. Else empty."""
        missing = {
            str(watched.informer.resource): watched.informer.problem
            for needs in self._needs.values()
            for watched in needs
            if not watched.informer.has_synced
        }
        if not self._needs:
            return "not started yet"
        if not missing:
            return ""
        return "not seen yet: " + ", ".join(
            kind if problem is None else f"{kind} ({problem})" for kind, problem in missing.items()
        )

    def what_is_wrong(self) -> str:
        """Why this process should be started again: a controller that fails ends it by itself."""
        return ""

    def leads(self, is_leader: bool) -> None:
        """Whether this process is the one that acts, for the metrics."""
        self.metrics.leads(is_leader)

    def pages(self) -> dict[str, Callable[[], bytes]]:
        """Nothing to show beside the metrics."""
        return {}

    async def render_metrics(self) -> bytes:
        """Prometheus' text, less the series of jobs that are gone."""
        jobs = next(
            (
                watched.informer
                for needs in self._needs.values()
                for watched in needs
                if watched.informer.resource.kind == JOBS.kind
            ),
            None,
        )
        if jobs is not None:
            self.metrics.keep_jobs(lambda key: jobs.get(*key.split("/", 1)) is not None)
        return self.metrics.registry.render()


async def _run_when_ready(controller: Controller, needs: Iterable[Watched]) -> None:
    """A controller that acted on half of what there is would do harm."""
    for watched in needs:
        await watched.informer.synced()
    await controller.run()

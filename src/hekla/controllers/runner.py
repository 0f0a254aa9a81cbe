"""Run the selected controllers on one set of informers.

await Controllers(client).run()                                  # all of them, until cancelled
await Controllers(client, select=["*", "-gc-controller"]).run()
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from hekla.api import wellknown
from hekla.controllers.command import CommandController
from hekla.controllers.cronjob.controller import CronJobController
from hekla.controllers.gc import GarbageController
from hekla.controllers.history.recorder import HistoryController
from hekla.controllers.hypernode.controller import HyperNodeController
from hekla.controllers.informers import InformerFactory, MutationCache
from hekla.controllers.job.controller import JobController
from hekla.controllers.jobflow.controller import JobFlowController
from hekla.controllers.jobflow.jobtemplate import JobTemplateController
from hekla.controllers.metrics import Metrics
from hekla.controllers.nodes.controller import NodeLifecycleController
from hekla.controllers.podgroup import PodGroupController
from hekla.controllers.queue.controller import QueueController
from hekla.controllers.reconciler import Reconciler
from hekla.controllers.workloads.controllers import (
    BatchCronJobController,
    BatchJobController,
    DeploymentController,
    EndpointsController,
    ReplicaSetController,
    ReplicationControllerController,
    StatefulSetController,
)
from hekla.kube.client import Client
from hekla.kube.recorder import EventRecorder
from hekla.kube.resources import JOBS
from hekla.records.store import HistoryStore
from hekla.units.clock import Clock, SystemClock

LEASE: Final = "vc-controller-manager"

Builder = Callable[[InformerFactory, EventRecorder, Metrics], Reconciler]


def _by_name(*controllers: type[Reconciler]) -> dict[str, Builder]:
    return {controller.name: controller for controller in controllers}


BUILDERS: Final = _by_name(
    JobController,
    QueueController,
    CommandController,
    CronJobController,
    PodGroupController,
    GarbageController,
    JobFlowController,
    JobTemplateController,
    HyperNodeController,
)

WORKLOADS: Final = _by_name(
    ReplicaSetController,
    ReplicationControllerController,
    DeploymentController,
    StatefulSetController,
    BatchJobController,
    BatchCronJobController,
    EndpointsController,
)
"""Controllers of Kubernetes' own kinds.

Off unless named: a cluster has a kube-controller-manager.
"""


EMBEDDED: Final = _by_name(NodeLifecycleController)
"""Controllers that only the embedded cluster needs, beside `WORKLOADS`. Off unless named."""


def selected(requested: Sequence[str]) -> list[str]:
    """Return the controllers that `--controllers` selects.

    `*` selects all but `WORKLOADS` and `EMBEDDED`, `x` or `+x` adds one, `-x` removes one.
    """
    known = [*BUILDERS, *WORKLOADS, *EMBEDDED]
    for word in requested:
        if word != "*" and word.lstrip("+-") not in known:
            raise ValueError(f"no controller {word.lstrip('+-')!r}; known are {', '.join(known)}")
    everything = not requested or "*" in requested
    chosen = {name for name in BUILDERS if everything}
    chosen |= {word.lstrip("+") for word in requested if word != "*" and not word.startswith("-")}
    chosen -= {word[1:] for word in requested if word.startswith("-")}
    return [name for name in known if name in chosen]


class Controllers:
    """All selected controllers on one client."""

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
        counts_batch_period_s: float | None = None,
        history: HistoryStore | None = None,
    ) -> None:
        """Select controllers by name.

        `workers` is the number of objects that a controller reconciles at once. Pods without a
        PodGroup get one if their scheduler is one of `schedulers`. With `history`, ended jobs are
        recorded there.
        """
        self._client = client
        self._clock: Clock = clock or SystemClock()
        self._names = selected(select)
        self._workers = workers or {}
        self._builders: dict[str, Builder] = {
            **BUILDERS,
            **WORKLOADS,
            **EMBEDDED,
            PodGroupController.name: partial(PodGroupController, schedulers=tuple(schedulers)),
        }
        if counts_batch_period_s is not None:
            self._builders[JobController.name] = partial(
                JobController, counts_batch_period_s=counts_batch_period_s
            )
        if history is not None:
            self._builders[HistoryController.name] = partial(HistoryController, store=history)
            self._names.append(HistoryController.name)
        self._recorder_client = recorder_client or client
        self.metrics = metrics or Metrics()
        self.controllers: dict[str, Reconciler] = {}
        self._caches: dict[str, list[MutationCache]] = {}
        """The caches of each controller."""

    async def run(self) -> None:
        """Run until cancelled."""
        informers = InformerFactory(self._client, self._clock)
        recorder = EventRecorder(
            self._recorder_client, component=wellknown.CONTROLLER_COMPONENT, clock=self._clock
        )
        self.controllers, self._caches = {}, {}
        for name in self._names:
            self.controllers[name] = self._builders[name](informers, recorder, self.metrics)
            self._caches[name] = informers.take_requested()
            if name in self._workers:
                self.controllers[name].workers = self._workers[name]
        async with recorder, informers.running(), asyncio.TaskGroup() as group:
            for name, controller in self.controllers.items():
                group.create_task(_run_when_synced(controller, self._caches[name]), name=name)

    def not_ready_reason(self) -> str:
        """Name the kinds whose informers have not synced; empty if all have."""
        missing = {
            str(cache.informer.resource): cache.informer.problem
            for caches in self._caches.values()
            for cache in caches
            if not cache.informer.has_synced
        }
        if not self._caches:
            return "not started yet"
        if not missing:
            return ""
        return "not seen yet: " + ", ".join(
            kind if problem is None else f"{kind} ({problem})" for kind, problem in missing.items()
        )

    def unhealthy_reason(self) -> str:
        """Return why this process should restart: never, as a controller that fails ends it."""
        return ""

    def set_leader(self, is_leader: bool) -> None:
        """Record in the metrics whether this process is the leader."""
        self.metrics.set_leader(is_leader)

    def pages(self) -> dict[str, Callable[[], bytes]]:
        """Return no pages besides the metrics."""
        return {}

    async def render_metrics(self) -> bytes:
        """Render the metrics without the series of deleted jobs."""
        jobs = next(
            (
                cache.informer
                for caches in self._caches.values()
                for cache in caches
                if str(cache.informer.resource) == str(JOBS)
            ),
            None,
        )
        if jobs is not None:
            self.metrics.keep_jobs(lambda key: jobs.get(*key.split("/", 1)) is not None)
        return self.metrics.registry.render()


async def _run_when_synced(controller: Reconciler, caches: Iterable[MutationCache]) -> None:
    """Run a controller once its caches hold all objects: it must not decide on a part of them."""
    for cache in caches:
        await cache.informer.synced()
    await controller.run()

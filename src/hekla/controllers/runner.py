"""The controllers as a running part: one set of watches, the controllers that were asked for.

await Controllers(client).run()                                  # all of them, until cancelled
await Controllers(client, select=["*", "-gc-controller"]).run()
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from hekla.api import wellknown
from hekla.controllers.command import CommandController
from hekla.controllers.cronjob import CronJobController
from hekla.controllers.flowcontroller import JobFlowController
from hekla.controllers.gc import GarbageController
from hekla.controllers.job.controller import JobController
from hekla.controllers.jobtemplate import JobTemplateController
from hekla.controllers.metrics import Metrics
from hekla.controllers.podgroup import PodGroupController
from hekla.controllers.queue import QueueController
from hekla.controllers.watched import Watched, World
from hekla.kube.client import Client
from hekla.kube.leases import LeaderElector
from hekla.kube.recorder import EventRecorder
from hekla.units.clock import Clock, SystemClock

log = logging.getLogger("hekla.controllers")

LEASE: Final = "vc-controller-manager"


class Controller(Protocol):
    """Something that works while the world is watched."""

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
}


def selected(asked: Sequence[str]) -> list[str]:
    """The controllers that `--controllers` names: `*` for all, `-x` without, `x` or `+x` with."""
    known = list(BUILDERS)
    for word in asked:
        if word != "*" and word.lstrip("+-") not in known:
            raise ValueError(f"no controller {word.lstrip('+-')!r}; there are {', '.join(known)}")
    everything = not asked or "*" in asked
    chosen = {name for name in known if everything}
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
        leader_identity: str = "",
        recorder_client: Client | None = None,
        gather_counts_s: float | None = None,
    ) -> None:
        self._client = client
        self._clock: Clock = clock or SystemClock()
        self._names = selected(select)
        self._leader_identity = leader_identity
        self._recorder_client = recorder_client or client
        self._gather_counts_s = gather_counts_s
        self.metrics = Metrics()
        self.controllers: dict[str, Controller] = {}

    async def run(self) -> None:
        """Until cancelled; with an identity, only while it leads."""
        if not self._leader_identity:
            await self._work()
            return
        elector = LeaderElector(
            self._client,
            LEASE,
            self._leader_identity,
            namespace=wellknown.SYSTEM_NAMESPACE,
            clock=self._clock,
        )
        await elector.run(self._work)

    async def _work(self) -> None:
        world = World(self._client, self._clock)
        recorder = EventRecorder(
            self._recorder_client, component=wellknown.CONTROLLER_COMPONENT, clock=self._clock
        )
        needs: dict[str, list[Watched]] = {}
        self.controllers = {}
        for name in self._names:
            self.controllers[name] = BUILDERS[name](world, recorder, self.metrics)
            needs[name] = world.asked_for()
        jobs = self.controllers.get("job-controller")
        if isinstance(jobs, JobController) and self._gather_counts_s is not None:
            jobs.gather_counts_for(self._gather_counts_s)
        async with recorder, world.running(), asyncio.TaskGroup() as group:
            for name, controller in self.controllers.items():
                group.create_task(_run_when_ready(controller, needs[name]), name=name)


async def _run_when_ready(controller: Controller, needs: Iterable[Watched]) -> None:
    """A controller that acted on half of what there is would do harm."""
    for watched in needs:
        await watched.informer.synced()
    await controller.run()

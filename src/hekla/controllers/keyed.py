"""What all small controllers share: a queue of keys, workers, and calm about conflicts."""

from __future__ import annotations

import logging
from typing import Any, ClassVar, Final, Literal

from hekla.controllers.metrics import Metrics
from hekla.controllers.objects import Key, key_of
from hekla.controllers.watched import World
from hekla.kube.errors import AlreadyExists, Conflict, NotFound
from hekla.kube.recorder import EventRecorder, reference
from hekla.kube.resources import Resource
from hekla.kube.workqueue import WorkQueue, run_workers
from hekla.units.objects import Object

log = logging.getLogger("hekla.controllers")

CONFLICT_RETRY_S: Final = 0.02
MAX_TOLD: Final = 4096


class KeyedController:
    """A controller that looks at one object at a time. Subclasses watch and `sync`."""

    name: ClassVar[str] = ""
    workers: int = 3

    def __init__(self, world: World, recorder: EventRecorder, metrics: Metrics) -> None:
        self.client = world.client
        self.clock = world.clock
        self.metrics = metrics
        self.queue: WorkQueue[Key] = WorkQueue(clock=world.clock)
        self._recorder = recorder
        self._told: dict[tuple[str, ...], None] = {}

    async def run(self) -> None:
        """Until cancelled."""
        await run_workers(self.queue, self._guarded, self.workers)

    async def sync(self, key: Key) -> float | None:
        """Look at one object; seconds until it must be looked at again, if so."""
        raise NotImplementedError

    def enqueue(self, event: str, old: Object | None, new: Object | None) -> None:
        """A handler for the kind that the keys name."""
        obj = new or old
        assert obj is not None
        self.queue.add(key_of(obj))

    def tell(
        self,
        resource: Resource[Any],
        obj: Object,
        type: Literal["Normal", "Warning"],
        reason: str,
        message: str,
    ) -> None:
        """An Event, once for each text."""
        about = reference(resource, obj)
        mark = (about.uid, reason, message)
        if mark not in self._told:
            self._told[mark] = None
            if len(self._told) > MAX_TOLD:
                self._told.pop(next(iter(self._told)))
            self._recorder.event(about, type, reason, message)

    async def _guarded(self, key: Key) -> float | None:
        try:
            return await self.sync(key)
        except AlreadyExists:
            raise
        except (Conflict, NotFound) as error:
            # Somebody else changed or removed it meanwhile; what is true now decides.
            log.debug("%s: %s has changed: %s", self.name, key, error)
            return CONFLICT_RETRY_S
        except Exception:
            self.metrics.count("sync_errors", controller=self.name)
            raise

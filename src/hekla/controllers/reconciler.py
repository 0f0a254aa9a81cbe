"""The base of all controllers: a queue of keys, workers, and a retry when an object has changed."""

from __future__ import annotations

import logging
from typing import Any, ClassVar, Final, Literal

from hekla.controllers.informers import InformerFactory
from hekla.controllers.metrics import Metrics
from hekla.controllers.objects import Key, key_of
from hekla.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound, is_namespace_terminating
from hekla.kube.recorder import EventRecorder, reference
from hekla.kube.resources import Resource
from hekla.kube.workqueue import WorkQueue, run_workers
from hekla.units.objects import Object

log = logging.getLogger("hekla.controllers")

CONFLICT_REQUEUE_S: Final = 0.02
MAX_REMEMBERED_EVENTS: Final = 4096


class Reconciler:
    """A controller that reconciles one object at a time.

    A subclass takes its caches from the `InformerFactory`, adds handlers that put keys into
    `queue`, and implements `reconcile`.
    """

    name: ClassVar[str] = ""
    workers: int = 3

    def __init__(
        self, informers: InformerFactory, recorder: EventRecorder, metrics: Metrics
    ) -> None:
        self.client = informers.client
        self.clock = informers.clock
        self.metrics = metrics
        self.queue: WorkQueue[Key] = WorkQueue(clock=informers.clock)
        self._recorder = recorder
        self._emitted: dict[tuple[str, str, str], None] = {}

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await run_workers(self.queue, self._reconcile_or_requeue, self.workers)

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile one object; return the seconds after which to do so again, if any."""
        raise NotImplementedError

    def enqueue(self, event: str, old: Object | None, new: Object | None) -> None:
        """Handle a change of the kind that the keys name."""
        obj = new or old
        assert obj is not None
        self.queue.add(key_of(obj))

    def emit_event(
        self,
        resource: Resource[Any],
        obj: Object,
        type: Literal["Normal", "Warning"],
        reason: str,
        message: str,
        *,
        deduplicate: bool = True,
    ) -> None:
        """Emit an Event; with `deduplicate`, once per object, reason and message."""
        involved = reference(resource, obj)
        key = (involved.uid, reason, message)
        if deduplicate:
            if key in self._emitted:
                return
            self._emitted[key] = None
            if len(self._emitted) > MAX_REMEMBERED_EVENTS:
                self._emitted.pop(next(iter(self._emitted)))
        self._recorder.event(involved, type, reason, message)

    def count_conflict(self) -> None:
        """Count a reconciliation that lost against another writer."""

    def count_error(self) -> None:
        """Count a reconciliation that failed."""
        self.metrics.count("sync_errors", controller=self.name)

    async def _reconcile_or_requeue(self, key: Key) -> float | None:
        try:
            return await self.reconcile(key)
        except AlreadyExists:  # a conflict by class, but the object that exists is in the way
            raise
        except (Conflict, NotFound) as error:
            # Another writer changed or deleted the object; the next run decides on the new state.
            log.debug("%s: %s has changed: %s", self.name, key, error)
            self.count_conflict()
            return CONFLICT_REQUEUE_S
        except Forbidden as error:
            if not is_namespace_terminating(error):
                self.count_error()
                raise
            # Nothing can be created there any more, and deletions of its objects are reported.
            log.debug("%s: %s: its namespace is being deleted: %s", self.name, key, error)
            return None
        except Exception:
            self.count_error()
            raise

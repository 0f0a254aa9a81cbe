"""The controller of queues."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, Literal

from hekla.api import wellknown
from hekla.api.volcano.queues import BUILTIN_QUEUES
from hekla.api.wellknown import Action
from hekla.controllers.command import delete_command, is_for
from hekla.controllers.effects import RequeueAfter
from hekla.controllers.informers import PARENT, QUEUE, TARGET, InformerFactory
from hekla.controllers.metrics import Metrics
from hekla.controllers.objects import Key, is_deleting, key_of, status_of, uid_of
from hekla.controllers.queue.state import (
    Effect,
    FinishCommand,
    PatchQueue,
    QueueView,
    RejectCommand,
    SetCounts,
    SetState,
    next_step,
    podgroup_counts,
)
from hekla.controllers.reconciler import Reconciler
from hekla.kube.queues import ensure_queue
from hekla.kube.recorder import EventRecorder
from hekla.kube.resources import COMMANDS, PODGROUPS, QUEUES
from hekla.units.objects import Object

COUNTS_BATCH_PERIOD_S: Final = 1.0
GROUPS_BATCH_PERIOD_S: Final = 0.2
CREATE_RETRY_S: Final = 2.0


class QueueController(Reconciler):
    """Reconciles queues, and creates the built-in ones."""

    name = "queue-controller"
    workers = 5

    def __init__(
        self,
        informers: InformerFactory,
        recorder: EventRecorder,
        metrics: Metrics,
        *,
        counts_batch_period_s: float = COUNTS_BATCH_PERIOD_S,
    ) -> None:
        super().__init__(informers, recorder, metrics)
        self._counts_batch_period_s = counts_batch_period_s
        self._counted_at: dict[str, float] = {}
        self._queues = informers.cache(QUEUES)
        self._groups = informers.cache(PODGROUPS)
        self._commands = informers.cache(COMMANDS)
        self._queues.add_handler(self._on_queue)
        self._groups.add_handler(self._on_group)
        self._commands.add_handler(self._on_command)

    async def run(self) -> None:
        """Create the built-in queues, and reconcile until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._create_builtin_queues())
            await super().run()

    async def _create_builtin_queues(self) -> None:
        """Create `root` and `default`, which Volcano's clients expect."""
        for name in BUILTIN_QUEUES:
            created = await ensure_queue(
                self.client,
                self.clock,
                name,
                is_known=partial(self._has_queue, name),
                retry_s=lambda failures: CREATE_RETRY_S,
            )
            if created is not None:
                self._queues.record_write(created)
            self.queue.add(("", name))

    def _has_queue(self, name: str) -> bool:
        return self._queues.get("", name) is not None

    def _on_queue(self, event: str, old: Object | None, new: Object | None) -> None:
        queue = new or old
        assert queue is not None
        self.queue.add(key_of(queue))
        before, after = status_of(old or {}).get("state"), status_of(new or {}).get("state")
        if before != after:
            for child in self._queues.by_index(PARENT, queue["metadata"]["name"]):
                self.queue.add(key_of(child))

    def _on_group(self, event: str, old: Object | None, new: Object | None) -> None:
        before = None if old is None else status_of(old).get("phase")
        after = None if new is None else status_of(new).get("phase")
        if old is not None and new is not None and before == after:
            return
        group = new or old
        assert group is not None
        # Reconciling a queue counts all its groups, so changes are batched.
        name = (group.get("spec") or {}).get("queue") or wellknown.DEFAULT_QUEUE
        self.queue.add_after(("", name), GROUPS_BATCH_PERIOD_S)

    def _on_command(self, event: str, old: Object | None, new: Object | None) -> None:
        command = new or old
        assert command is not None
        target = command.get("target") or {}
        if target.get("kind") == "Queue":
            self.queue.add(("", target["name"]))

    async def reconcile(self, key: Key) -> float | None:
        queue = self._queues.get(*key)
        name = key[1]
        if queue is None:
            self.metrics.forget_queue(name)
            return None
        parent = (queue.get("spec") or {}).get("parent") or wellknown.ROOT_QUEUE
        view = QueueView(
            queue,
            self.clock.now(),
            parent=None if name == wellknown.ROOT_QUEUE else self._queues.get("", parent),
            groups=self._groups.by_index(QUEUE, name),
            commands=[
                command
                for command in self._commands.by_index(TARGET, f"Queue//{name}")
                if not is_deleting(command) and is_for(command, queue)
            ],
        )
        self.metrics.count_groups(name, podgroup_counts(view.groups))
        requeue_s: float | None = None
        for effect in next_step(view):
            after_s = await self._apply(queue, effect)
            requeue_s = after_s if requeue_s is None else min(requeue_s, after_s or requeue_s)
        return requeue_s

    async def _apply(self, queue: Object, effect: Effect) -> float | None:
        """Apply one effect; return the seconds after which to reconcile again, if any."""
        name = queue["metadata"]["name"]
        match effect:
            case PatchQueue(patch):
                self._queues.record_write(await self.client.patch(QUEUES, name, patch))
            case SetState(state, action):
                await self._set_status(name, {"state": state})
                if action != Action.SYNC_QUEUE:
                    self._emit(queue, "Normal", action, f"queue {name} is {state}")
            case SetCounts(counts):
                return await self._set_counts(queue, counts)
            case FinishCommand(command):
                await delete_command(self.client, self._commands, command)
                return 0.0  # there may be another command
            case RejectCommand(action, reason):
                self._emit(queue, "Warning", action, f"queue {name}: {reason}")
            case RequeueAfter(after_s):
                return after_s
        return None

    def _emit(
        self, queue: Object, type: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None:
        """Emit an Event each time: a queue can close more than once."""
        self.emit_event(QUEUES, queue, type, reason, message, deduplicate=False)

    async def _set_counts(self, queue: Object, counts: Mapping[str, int]) -> float | None:
        """Write the counts at most once per batch period."""
        uid, now = uid_of(queue), self.clock.monotonic()
        wait_s = self._counted_at.get(uid, -1e9) + self._counts_batch_period_s - now
        if wait_s > 0:
            return wait_s
        self._counted_at[uid] = now
        await self._set_status(queue["metadata"]["name"], dict(counts))
        return None

    async def _set_status(self, name: str, status: dict[str, Any]) -> None:
        written = await self.client.patch(
            QUEUES,
            name,
            {"status": status},
            subresource="status",
            field_manager=wellknown.QUEUE_CONTROLLER_MANAGER,
        )
        self._queues.record_write(written)

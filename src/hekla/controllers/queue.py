"""The queue controller: open, closing, closed, and what closes with what.

`next_step` is pure. A queue follows its parent: it closes when the parent does, bearing the mark
`closed-by-parent`, and opens again with it; a queue that a person closed stays closed. The counts
of PodGroups by phase go into the status, gathered for a moment: Volcano declares the fields and
leaves them empty.

What a newcomer gets wrong: Closing is not Closed. A closing queue takes no new jobs, but those that
are in it run on, and restart; it is Closed when its last PodGroup has gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hekla.api import wellknown
from hekla.api.wellknown import Action, PodGroupPhase, QueueState
from hekla.controllers.command import finish
from hekla.controllers.metrics import Metrics
from hekla.controllers.objects import (
    Key,
    annotations_of,
    created_at,
    is_deleting,
    key_of,
    status_of,
    uid_of,
)
from hekla.controllers.watched import World
from hekla.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from hekla.kube.recorder import EventRecorder, reference
from hekla.kube.resources import COMMANDS, PODGROUPS, QUEUES
from hekla.kube.workqueue import WorkQueue, run_workers
from hekla.units.objects import Object

log = logging.getLogger("hekla.controllers")

WORKERS: Final = 5
GATHER_COUNTS_S: Final = 1.0
GATHER_GROUPS_S: Final = 0.2
FOUND_RETRY_S: Final = 2.0
OPEN_RETRY_S: Final = 1.0
OPEN_PATIENCE_S: Final = 15.0

_COUNTED: Final = {
    PodGroupPhase.PENDING: "pending",
    PodGroupPhase.INQUEUE: "inqueue",
    PodGroupPhase.RUNNING: "running",
    PodGroupPhase.UNKNOWN: "unknown",
    PodGroupPhase.COMPLETED: "completed",
}
_SHUT: Final = (QueueState.CLOSED, QueueState.CLOSING)


@dataclass(frozen=True, slots=True)
class PatchQueue:
    patch: Object


@dataclass(frozen=True, slots=True)
class SetState:
    state: str
    action: str


@dataclass(frozen=True, slots=True)
class SetCounts:
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class FinishCommand:
    command: Object


@dataclass(frozen=True, slots=True)
class Refuse:
    """A wish that cannot be granted, told on the queue."""

    action: str
    why: str


@dataclass(frozen=True, slots=True)
class Wake:
    after_s: float


Effect = PatchQueue | SetState | SetCounts | FinishCommand | Refuse | Wake


@dataclass(frozen=True)
class QueueView:
    queue: Object
    now: float
    parent: Object | None = None
    """None also for a parent that does not exist: nothing is closed for that."""
    groups: Sequence[Object] = ()
    commands: Sequence[Object] = ()

    @property
    def name(self) -> str:
        return str(self.queue["metadata"]["name"])

    @property
    def state(self) -> str:
        return str(status_of(self.queue).get("state") or "")

    @property
    def is_shut(self) -> bool:
        return self.state in _SHUT

    @property
    def is_parent_shut(self) -> bool:
        return self.parent is not None and status_of(self.parent).get("state") in _SHUT

    @property
    def shut_state(self) -> str:
        return QueueState.CLOSING if self.groups else QueueState.CLOSED

    @property
    def is_closed_by_parent(self) -> bool:
        return annotations_of(self.queue).get(wellknown.CLOSED_BY_PARENT) == "true"


def next_step(view: QueueView) -> list[Effect]:
    """What to do about a queue."""
    if is_deleting(view.queue):
        return []
    is_root = view.name == wellknown.ROOT_QUEUE
    effects: list[Effect] = []
    if not is_root and not (view.queue.get("spec") or {}).get("parent"):
        effects.append(PatchQueue({"spec": {"parent": wellknown.ROOT_QUEUE}}))
    for command in sorted(view.commands, key=lambda each: (created_at(each), key_of(each))):
        return effects + _obey(view, command)
    effects += _follow(view)
    counts = counted(view.groups)
    status = status_of(view.queue)
    if any(int(status.get(name) or 0) != value for name, value in counts.items()):
        effects.append(SetCounts(counts))
    return effects


def counted(groups: Sequence[Object]) -> dict[str, int]:
    """PodGroups by phase; one without a phase is pending."""
    phases = Counter(status_of(group).get("phase") or PodGroupPhase.PENDING for group in groups)
    return {name: phases[phase] for phase, name in _COUNTED.items()}


def _obey(view: QueueView, command: Object) -> list[Effect]:
    done = FinishCommand(command)
    action = str(command.get("action") or "")
    if action == Action.CLOSE_QUEUE:
        if view.name == wellknown.ROOT_QUEUE:
            return [Refuse(action, "the root queue cannot be closed; close those below it"), done]
        if view.state == view.shut_state:
            return [done]
        return [SetState(view.shut_state, action), done]
    if action == Action.OPEN_QUEUE:
        if view.is_parent_shut:
            assert view.parent is not None
            # Its parent may be about to be opened too; a wish is not kept for ever.
            if view.now - created_at(command) < OPEN_PATIENCE_S:
                return [Wake(OPEN_RETRY_S)]
            parent = view.parent["metadata"]["name"]
            return [Refuse(action, f"its parent {parent!r} is closed; open that first"), done]
        return [*_open(view), done]
    return [Refuse(action or "Command", "a queue knows OpenQueue and CloseQueue alone"), done]


def _open(view: QueueView) -> list[Effect]:
    effects: list[Effect] = []
    if view.state != QueueState.OPEN:
        effects.append(SetState(QueueState.OPEN, Action.OPEN_QUEUE))
    if view.is_closed_by_parent:
        # Last: until then a restart finds a reason to open it.
        effects.append(_mark("false"))
    return effects


def _mark(value: str) -> PatchQueue:
    return PatchQueue({"metadata": {"annotations": {wellknown.CLOSED_BY_PARENT: value}}})


def _follow(view: QueueView) -> list[Effect]:
    """What state follows from the parent's and from the groups that are left."""
    if view.is_parent_shut:
        if not view.is_shut:
            mark: list[Effect] = [] if view.is_closed_by_parent else [_mark("true")]
            return [*mark, SetState(view.shut_state, Action.CLOSE_QUEUE)]
    elif view.is_closed_by_parent:
        return _open(view)
    if view.state == "":
        return [SetState(QueueState.OPEN, Action.SYNC_QUEUE)]
    if view.is_shut and view.state != view.shut_state:
        return [SetState(view.shut_state, Action.SYNC_QUEUE)]
    return []


class QueueController:
    """Looks after all queues. `run` it while the world is watched."""

    name = "queue-controller"
    workers = WORKERS

    def __init__(
        self,
        world: World,
        recorder: EventRecorder,
        metrics: Metrics,
        *,
        gather_counts_s: float = GATHER_COUNTS_S,
    ) -> None:
        self._client = world.client
        self._clock = world.clock
        self._recorder = recorder
        self._metrics = metrics
        self._gather_counts_s = gather_counts_s
        self._counted_at: dict[str, float] = {}
        self._queues = world.watch(QUEUES)
        self._groups = world.watch(PODGROUPS)
        self._commands = world.watch(COMMANDS)
        self.queue: WorkQueue[Key] = WorkQueue(clock=world.clock)
        self._queues.add_handler(self._on_queue)
        self._groups.add_handler(self._on_group)
        self._commands.add_handler(self._on_command)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._found())
            await run_workers(self.queue, self._sync, self.workers)

    async def _found(self) -> None:
        """Volcano's clients expect `root` and `default` to be there, and open.

        Until it is done: on a new cluster the webhooks may be up later than we are.
        """
        for name in (wellknown.ROOT_QUEUE, wellknown.DEFAULT_QUEUE):
            while not await self._has(name):
                await self._clock.sleep(FOUND_RETRY_S)
            self.queue.add(("", name))

    async def _has(self, name: str) -> bool:
        if self._queues.get("", name) is not None:
            return True
        spec = {"weight": 1, "reclaimable": name != wellknown.ROOT_QUEUE}
        try:
            body = {"metadata": {"name": name}, "spec": spec}
            self._queues.wrote(await self._client.create(QUEUES, body))
        except AlreadyExists:
            return True
        except KubeError as error:
            log.warning("queue %s is missing and cannot be made yet: %s", name, error)
            return False
        return True

    def _on_queue(self, event: str, old: Object | None, new: Object | None) -> None:
        queue = new or old
        assert queue is not None
        self.queue.add(key_of(queue))
        before, after = status_of(old or {}).get("state"), status_of(new or {}).get("state")
        if before != after:
            for child in self._queues.by_index("parent", queue["metadata"]["name"]):
                self.queue.add(key_of(child))

    def _on_group(self, event: str, old: Object | None, new: Object | None) -> None:
        before = None if old is None else status_of(old).get("phase")
        after = None if new is None else status_of(new).get("phase")
        if old is not None and new is not None and before == after:
            return
        group = new or old
        assert group is not None
        # Looking at a queue means looking at all its groups: once for many changes.
        name = (group.get("spec") or {}).get("queue") or wellknown.DEFAULT_QUEUE
        self.queue.add_after(("", name), GATHER_GROUPS_S)

    def _on_command(self, event: str, old: Object | None, new: Object | None) -> None:
        command = new or old
        assert command is not None
        target = command.get("target") or {}
        if target.get("kind") == "Queue":
            self.queue.add(("", target["name"]))

    async def _sync(self, key: Key) -> float | None:
        queue = self._queues.get(*key)
        name = key[1]
        if queue is None:
            self._metrics.forget_queue(name)
            return None
        parent = (queue.get("spec") or {}).get("parent") or wellknown.ROOT_QUEUE
        view = QueueView(
            queue,
            self._clock.now(),
            parent=None if name == wellknown.ROOT_QUEUE else self._queues.get("", parent),
            groups=self._groups.by_index("queue", name),
            commands=[
                command
                for command in self._commands.by_index("target", f"Queue//{name}")
                if not is_deleting(command)
            ],
        )
        self._metrics.count_groups(name, counted(view.groups))
        wait_s: float | None = None
        try:
            for effect in next_step(view):
                again_s = await self._perform(queue, effect)
                wait_s = again_s if wait_s is None else min(wait_s, again_s or wait_s)
        except AlreadyExists:
            raise
        except (Conflict, NotFound) as error:
            log.debug("queue %s has changed: %s", name, error)
            return 0.02
        return wait_s

    async def _perform(self, queue: Object, effect: Effect) -> float | None:
        name = queue["metadata"]["name"]
        match effect:
            case PatchQueue(patch):
                self._queues.wrote(await self._client.patch(QUEUES, name, patch))
            case SetState(state, action):
                await self._set_status(name, {"state": state})
                if action != Action.SYNC_QUEUE:
                    told = f"queue {name} is {state}"
                    self._recorder.event(reference(QUEUES, queue), "Normal", action, told)
            case SetCounts(counts):
                return await self._set_counts(queue, counts)
            case FinishCommand(command):
                await finish(self._client, self._commands, command)
                return 0.0  # there may be another
            case Refuse(action, why):
                told = f"queue {name}: {why}"
                self._recorder.event(reference(QUEUES, queue), "Warning", action, told)
            case Wake(after_s):
                return after_s
        return None

    async def _set_counts(self, queue: Object, counts: Mapping[str, int]) -> float | None:
        """A thousand jobs in a queue are not a thousand writes of its status."""
        uid, now = uid_of(queue), self._clock.monotonic()
        wait_s = self._counted_at.get(uid, -1e9) + self._gather_counts_s - now
        if wait_s > 0:
            return wait_s
        self._counted_at[uid] = now
        await self._set_status(queue["metadata"]["name"], dict(counts))
        return None

    async def _set_status(self, name: str, status: dict[str, Any]) -> None:
        written = await self._client.patch(
            QUEUES,
            name,
            {"status": status},
            subresource="status",
            field_manager=wellknown.QUEUE_CONTROLLER_MANAGER,
        )
        self._queues.wrote(written)

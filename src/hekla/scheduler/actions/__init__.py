"""The actions of a cycle, one file each. `allocation` and `preemption` hold their shared steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from hekla.scheduler.actions.allocate import allocate
from hekla.scheduler.actions.backfill import backfill
from hekla.scheduler.actions.enqueue import enqueue
from hekla.scheduler.actions.gangpreempt import gangpreempt
from hekla.scheduler.actions.gangreclaim import gangreclaim
from hekla.scheduler.actions.preempt import preempt
from hekla.scheduler.actions.reclaim import reclaim
from hekla.scheduler.actions.shuffle import shuffle
from hekla.scheduler.session.session import Session

ACTIONS: Final[Mapping[str, Callable[[Session], None]]] = {
    "enqueue": enqueue,
    "allocate": allocate,
    "backfill": backfill,
    "preempt": preempt,
    "reclaim": reclaim,
    "gangpreempt": gangpreempt,
    "gangreclaim": gangreclaim,
    "shuffle": shuffle,
}

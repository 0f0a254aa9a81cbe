"""Simulate power cuts for the store: record one run, then cut it at thousands of points.

Each time the possible remaining files are opened again. The store must hold exactly the state of
some revision, without a partial transaction or corruption. The revision must not be older than
anything that writers or watchers were sent. (With `durability="process"` the second holds only
while the machine stays up.)
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from hekla.apiserver.storage.store import Durability, Stale, Store
from hekla.apiserver.storage.watch_cache import Entry, Event
from tools.crash.vfs import Disk, Journal, Mark, Step, recording

KEYS = 40
RESOURCES = ("pods", "configmaps")
SMALL_WAL = 30
"""Pages after which the log is checkpointed: small, so that cuts happen during checkpoints."""

State = dict[tuple[str, str], tuple[int, bytes]]


@dataclass
class Life:
    """The operations of a run, and what was written to disk."""

    journal: Journal
    changes: list[tuple[int, str, str, bytes | None]] = field(default_factory=list)
    """(revision, resource, key, body or None) in the order of revisions."""

    def state_at(self, revision: int) -> State:
        state: State = {}
        end = bisect_left(self.changes, (revision + 1,))
        for number, resource, key, body in self.changes[:end]:
            if body is None:
                state.pop((resource, key), None)
            else:
                state[resource, key] = (number, body)
        return state


async def record(directory: Path, writes: int, durability: Durability, seed: int) -> Life:
    """Record a store under load from concurrent writers."""
    directory.mkdir(parents=True)  # noqa: ASYNC240 - before anything runs
    random = Random(seed)
    with recording(directory) as journal:
        life = Life(journal)
        store = Store.open(directory / "state.db", durability=durability)
        store._connection.execute(f"PRAGMA wal_autocheckpoint={SMALL_WAL}")

        def seen(resource: str, event: Event) -> None:
            body = None if event.removed else event.entry.body
            life.changes.append((event.entry.revision, resource, event.entry.key, body))
            journal.mark("seen", event.entry.revision)

        store.subscribe(seen)
        left = writes

        async def write(own: Random) -> None:
            nonlocal left
            while left > 0:
                left -= 1
                resource, key = own.choice(RESOURCES), f"ns/{own.randrange(KEYS):03}"
                previous = store.head(resource, key)
                removed = previous is not None and own.random() < 0.2
                body = own.randbytes(own.choice((20, 400, 3000)))
                entry = Entry(key, store.next_revision(), body)
                try:
                    await store.stage((resource, entry, previous, removed))
                except Stale:
                    continue
                journal.mark("acknowledged", entry.revision)

        await asyncio.gather(*(write(Random(random.random())) for _ in range(8)))
        await store.close()
    return life


class Lost(AssertionError):
    """An invariant is violated; the text names it and the point."""


@dataclass
class Totals:
    cuts: int = 0
    steps: int = 0
    unsynced_lost: int = 0
    """Number of cuts that lost the newest revision."""


def cut(life: Life, points: int, scratch: Path, seed: int, *, power: bool, told: bool) -> Totals:
    """End a life at `points` places. `power` loses what was not synced; `told` demands that what
    anybody was told is there.
    """
    random = Random(seed)
    steps = life.journal.steps
    places = sorted(random.sample(range(1, len(steps) + 1), min(points, len(steps))))
    totals, disk, promised = Totals(steps=len(steps)), Disk(), 0
    newest = 0
    following: Iterator[Step] = iter(steps)
    done = 0
    for place in places:
        while done < place:
            step = next(following)
            done += 1
            disk.take(step)
            if isinstance(step, Mark):
                newest = max(newest, step.revision)
                promised = newest if told else 0
        found, revision = _reopened(disk, scratch, random if power else None)
        totals.cuts += 1
        totals.unsynced_lost += revision < newest
        _judge(life, found, revision, promised, place)
    return totals


def _reopened(disk: Disk, scratch: Path, random: Random | None) -> tuple[State, int]:
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    disk.leave(scratch, random)
    path = scratch / "state.db"
    if not path.exists():
        return {}, 1
    connection = sqlite3.connect(path)
    try:
        (fine,) = connection.execute("PRAGMA integrity_check").fetchone()
        if fine != "ok":
            raise Lost(f"the database is damaged: {fine}")
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        if not {"objects", "facts"} <= tables:
            return {}, 1
        rows = connection.execute("SELECT resource, key, revision, body FROM objects")
        state = {(resource, key): (revision, body) for resource, key, revision, body in rows}
        row = connection.execute("SELECT value FROM facts WHERE name='revision'").fetchone()
        return state, int(row[0]) if row else 1
    finally:
        connection.close()


def _judge(life: Life, found: State, revision: int, promised: int, place: int) -> None:
    if revision < promised:
        raise Lost(f"step {place}: revision {promised} was told, the disk has {revision}")
    want = life.state_at(revision)
    if found != want:
        differing = sorted(k for k in found.keys() | want.keys() if found.get(k) != want.get(k))
        raise Lost(f"step {place}: at revision {revision} these differ: {differing[:5]}")

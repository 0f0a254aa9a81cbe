"""The history file: one row for each job that has ended, in SQLite.

    store = HistoryStore(path)
    store.put(record, settled=True)
    page = store.page(RecordFilter(user="alice"), limit=100)

All methods block; coroutines call them in a thread. A file that cannot be used raises
`HistoryError`, and the next call tries again: the history never stops a component.

Note: `pods` holds what pods that are already deleted have used, until their job is settled. So a
job whose pods are deleted one by one is accounted for, also after a restart.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hekla.api.history import JobRecord, account_of
from hekla.units.clock import Clock, SystemClock
from hekla.units.private_directory import create_private

HISTORY_FILE = "history.db"
"""Its name in the data directory of a cluster on this machine."""
MAX_JOBS = 100_000
MAX_AGE_DAYS = 400
MAX_PODS = 200_000
"""The most deleted pods of jobs that have not ended."""
PRUNE_INTERVAL_S = 3600.0
BUSY_TIMEOUT_S = 5.0
FORMAT = 1

_SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
    uid       TEXT PRIMARY KEY,
    namespace TEXT NOT NULL,
    id        TEXT NOT NULL,
    name      TEXT NOT NULL,
    user      TEXT NOT NULL,
    queue     TEXT NOT NULL,
    phase     TEXT NOT NULL,
    finished  REAL NOT NULL,
    settled   INTEGER NOT NULL,
    record    BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS jobs_by_end ON jobs (finished, uid);
CREATE INDEX IF NOT EXISTS jobs_by_namespace ON jobs (namespace, finished, uid);
CREATE INDEX IF NOT EXISTS jobs_by_name ON jobs (namespace, name);
CREATE TABLE IF NOT EXISTS pods (
    uid     TEXT PRIMARY KEY,
    job     TEXT NOT NULL,
    ended   REAL NOT NULL,
    account BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS pods_by_job ON pods (job);
"""


class HistoryError(Exception):
    """The history file cannot be read or written; the message says what to do."""


class PodAccount(msgspec.Struct, frozen=True):
    """What one pod of a job requested and used, and how it ended. Times are unix seconds."""

    uid: str
    phase: str = ""
    held_from: float | None = None
    """When it was placed; None if it was not."""
    started: float | None = None
    ended: float | None = None
    """When it stopped holding its resources; None while it does."""
    exit_code: int | None = None
    reason: str = ""
    requests: dict[str, float] = {}
    cpu_seconds: float | None = None
    memory_peak_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Which records are wanted; empty fields match all."""

    namespace: str = ""
    name: str = ""
    id: str = ""
    user: str = ""
    queue: str = ""
    phases: tuple[str, ...] = ()
    since: float | None = None
    """The earliest end, in unix seconds."""

    def where(self) -> tuple[list[str], list[str | float]]:
        """Return the conditions in SQL, and their parameters."""
        clauses: list[str] = []
        values: list[str | float] = []
        if self.user:
            clauses.append("user IN (?, ?)")
            values += [self.user, account_of(self.user)]
        for column in ("namespace", "name", "id", "queue"):
            if value := getattr(self, column):
                clauses.append(f"{column} = ?")
                values.append(value)
        if self.phases:
            clauses.append(f"phase COLLATE NOCASE IN ({', '.join('?' * len(self.phases))})")
            values += self.phases
        if self.since is not None:
            clauses.append("finished >= ?")
            values.append(self.since)
        return clauses, values


Position = tuple[float, str]
"""End and uid of the last record of a page."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some records, newest end first, and the position after which more follow, if any do."""

    records: list[JobRecord]
    position: Position | None = None


class HistoryStore:
    """Reads and writes the history file."""

    def __init__(
        self,
        path: Path,
        *,
        max_jobs: int = MAX_JOBS,
        max_age_days: float = MAX_AGE_DAYS,
        clock: Clock | None = None,
        default_user: str = "",
    ) -> None:
        """`default_user` is the user of jobs without a recorded submitter: those of the person who
        runs a cluster for themselves alone.
        """
        self.path = path
        self._default_user = default_user
        self._max_jobs = max_jobs
        self._max_age_s = max_age_days * 24 * 3600.0
        self._clock: Clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._pruned_at: float | None = None

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._drop()

    # Writing

    def put(self, record: JobRecord, *, settled: bool) -> None:
        """Write the record of a job, once for each uid; a settled one is not changed again."""
        if not record.user:
            record = msgspec.structs.replace(record, user=self._default_user)
        finished = record.finished.timestamp()
        row = (record.uid, record.namespace, record.id, record.name, record.user, record.queue,
               record.phase, finished, settled, msgspec.json.encode(record))  # fmt: skip
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (uid) DO UPDATE "
                "SET phase = excluded.phase, finished = excluded.finished, "
                "settled = excluded.settled, record = excluded.record WHERE settled = 0",
                row,
            )
            if settled:
                connection.execute("DELETE FROM pods WHERE job = ?", (record.uid,))
            self._prune(connection)

    def add_pods(self, accounts: Sequence[tuple[str, PodAccount]]) -> None:
        """Write accounts of deleted pods by the uid of their job, unless the job is settled."""
        with self._transaction() as connection:
            connection.executemany(
                "INSERT OR IGNORE INTO pods SELECT ?1, ?2, ?3, ?4 "
                "WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE uid = ?2 AND settled = 1)",
                [
                    (
                        account.uid,
                        job,
                        account.ended or self._clock.now(),
                        msgspec.json.encode(account),
                    )
                    for job, account in accounts
                ],
            )
            self._prune(connection)

    # Reading

    def is_settled(self, uid: str) -> bool:
        """Return whether the final record of a job is written."""
        with self._transaction() as connection:
            found = connection.execute("SELECT settled FROM jobs WHERE uid = ?", (uid,)).fetchone()
        return found is not None and bool(found[0])

    def pods_of(self, job: str) -> list[PodAccount]:
        """Return the accounts of the deleted pods of a job that is not settled."""
        with self._transaction() as connection:
            rows = connection.execute("SELECT account FROM pods WHERE job = ?", (job,)).fetchall()
        return [msgspec.json.decode(account, type=PodAccount) for (account,) in rows]

    def page(self, wanted: RecordFilter, *, limit: int, after: Position | None = None) -> Page:
        """Return at most `limit` records, newest end first."""
        clauses, values = wanted.where()
        if after is not None:
            clauses.append("(finished, uid) < (?, ?)")
            values += after
        condition = f"WHERE {' AND '.join(clauses)}" if clauses else ""
        with self._transaction() as connection:
            rows = connection.execute(
                f"SELECT finished, uid, record FROM jobs {condition} "
                "ORDER BY finished DESC, uid DESC LIMIT ?",
                (*values, limit + 1),
            ).fetchall()
        records = [msgspec.json.decode(body, type=JobRecord) for _, _, body in rows[:limit]]
        position = (rows[limit - 1][0], rows[limit - 1][1]) if len(rows) > limit else None
        return Page(records, position)

    # The file

    def _prune(self, connection: sqlite3.Connection) -> None:
        """Remove what is too old or too much, once an hour."""
        now = self._clock.now()
        if self._pruned_at is not None and now < self._pruned_at + PRUNE_INTERVAL_S:
            return
        oldest = now - self._max_age_s
        connection.execute("DELETE FROM jobs WHERE finished < ?", (oldest,))
        connection.execute("DELETE FROM pods WHERE ended < ?", (oldest,))
        for table, order, kept in (
            ("jobs", "finished", self._max_jobs),
            ("pods", "ended", MAX_PODS),
        ):
            connection.execute(
                f"DELETE FROM {table} WHERE uid IN "
                f"(SELECT uid FROM {table} ORDER BY {order} DESC LIMIT -1 OFFSET ?)",
                (kept,),
            )
        self._pruned_at = now

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                connection = self._connection or self._open()
                with connection:
                    yield connection
            except (sqlite3.Error, msgspec.MsgspecError, OSError) as error:
                self._drop()
                raise HistoryError(self._explained(error)) from error

    def _open(self) -> sqlite3.Connection:
        create_private(self.path)
        connection = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version > FORMAT:
                raise HistoryError(
                    f"history file {self.path} has the format {version} of a newer hekla; update "
                    "hekla, or move the file away"
                )
            connection.executescript(_SCHEMA)
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _explained(self, error: Exception) -> str:
        """Return what is wrong with the file and what helps."""
        text = str(error)
        help = f"check that {self.path.parent} exists and is writable"
        if (
            "malformed" in text
            or "not a database" in text
            or isinstance(error, msgspec.MsgspecError)
        ):
            help = f"move it away to start a new one: mv {self.path} {self.path}.broken"
        elif "full" in text or "No space" in text:
            help = "free some space; nothing of the cluster stops"
        return f"history file {self.path} cannot be used: {text}; {help}"

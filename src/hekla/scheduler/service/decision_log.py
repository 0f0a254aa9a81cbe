"""The decision log: the state and the plan of every cycle, for replay.

The file is a sequence of gzip members with JSON lines (`zcat` reads it). A `start` line begins with
an empty cluster. Every change of the state is a line. A `cycle` line has the time, the
configuration and the plan. Each file begins with a start and a checkpoint, so it is complete by
itself.

It contains names, labels, annotations and requests of pods and nodes. It contains no environment,
no commands and no secrets: the scheduler does not read them. The annotation of `kubectl apply` and
the password of a load source are left out.

Note: the log must not slow a decision down. Lines are encoded, compressed and written in a thread.
If that falls behind, cycles are left out, and the next cycle begins a new file.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from hekla import __version__
from hekla.scheduler.framework.plan import Plan
from hekla.scheduler.service.cache import Cache
from hekla.scheduler.service.checkpoint import checkpoint
from hekla.scheduler.state.changes import Change, Put

log = logging.getLogger("hekla.scheduler")

MAX_BYTES: Final = 64 * 1024 * 1024
MAX_FILES: Final = 4
MAX_KEPT: Final = 8
MAX_UNWRITTEN: Final = 64
MAX_CHANGES: Final = 20_000
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


class Start(msgspec.Struct, frozen=True, tag="start"):
    """The beginning of a log: the lines that follow start with an empty cluster."""

    hekla: str
    scheduler_names: tuple[str, ...]
    default_queue: str


class Decision(msgspec.Struct, frozen=True):
    """A plan as plain data."""

    effects: list[dict[str, Any]]
    pipelined: dict[str, str]
    failures: list[dict[str, str]]
    """Plugins that failed: a replay cannot reproduce their answers."""
    verdicts: str
    """A digest of the verdicts. A replay gives the texts."""


class Cycle(msgspec.Struct, frozen=True, tag="cycle"):
    number: int
    now: float
    configuration: str | None
    skipped: dict[str, str]
    plan: Decision


Line: TypeAlias = Start | Cycle | Change

_encoder = msgspec.json.Encoder()


def described(plan: Plan) -> Decision:
    """Return a plan in the form of the log."""
    verdicts = {key: verdict.to_dict() for key, verdict in plan.verdicts.items()}
    text = msgspec.json.encode(verdicts, order="deterministic")
    return Decision(
        effects=[
            {"type": type(effect).__name__, **msgspec.to_builtins(effect)}
            for effect in plan.effects
        ],
        pipelined=dict(sorted(plan.pipelined.items())),
        failures=[msgspec.to_builtins(failure) for failure in plan.failures],
        verdicts=hashlib.sha256(text).hexdigest()[:16],
    )


class DecisionLog:
    """A rotated log file: FILE, and older ones as FILE.1 to FILE.3."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES, max_files: int = MAX_FILES):
        self.path = path
        self.dropped = 0
        """The number of cycles that were left out because writing was slow or failed."""
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._size = 0
        self._is_broken = True
        self._has_gap = False
        self._unwritten = 0
        self._kept = 0
        self._thread = ThreadPoolExecutor(1, "decision-log")

    @property
    def wants_start(self) -> bool:
        """Whether the next lines must begin with a checkpoint."""
        return self._is_broken or self._size >= self._max_bytes

    def put(self, lines: Sequence[Line], cycle: Cycle | None, plan: Plan | None) -> None:
        """Write lines in the thread. The caller must not change them any more."""
        if self._unwritten >= MAX_UNWRITTEN:
            self.dropped += 1
            self._is_broken = True
            return
        if lines and isinstance(lines[0], Start):
            self._is_broken = False
            self._size = 0
        self._unwritten += 1
        self._thread.submit(self._write, lines, cycle, plan)

    def restart(self) -> None:
        """Let the next lines begin with a checkpoint."""
        self._is_broken = True

    def keep(self, number: int) -> Path | None:
        """Copy the file once all so far is written, so that rotation does not delete a cycle.

        Return the path of the copy; None once there are MAX_KEPT copies.
        """
        if self._kept >= MAX_KEPT:
            return None
        self._kept += 1
        copy = self.path.with_name(f"{self.path.name}.cycle-{number}")
        self._thread.submit(shutil.copyfile, self.path, copy)
        return copy

    def flush(self) -> None:
        """Wait until everything is written."""
        self._thread.submit(_nothing).result()

    def close(self) -> None:
        """Write the rest and stop the thread."""
        self._thread.shutdown()

    def _write(self, lines: Sequence[Any], cycle: Cycle | None, plan: Plan | None) -> None:
        try:
            if lines and isinstance(lines[0], Start):
                self._rotate()
                self._has_gap = False
            elif self._has_gap:
                return  # earlier lines that it depends on are lost
            parts = [_encoder.encode(_public(line)) for line in lines]
            if cycle is not None and plan is not None:
                parts.append(_encoder.encode(msgspec.structs.replace(cycle, plan=described(plan))))
            packed = gzip.compress(b"\n".join(parts) + b"\n", compresslevel=1)
            with open(self.path, "ab", opener=_private) as file:
                file.write(packed)
            self._size += len(packed)
        except Exception:  # an error of the log must not stop scheduling
            if not self._is_broken:
                log.exception("decision log %s: cannot be written", self.path)
            self.dropped += 1
            self._is_broken = self._has_gap = True
        finally:
            self._unwritten -= 1

    def _rotate(self) -> None:
        for number in range(self._max_files - 1, 0, -1):
            newer = self.path if number == 1 else _numbered(self.path, number - 1)
            if newer.exists():
                newer.replace(_numbered(self.path, number))


class Journal:
    """Records the cycles of one scheduler in a decision log."""

    def __init__(
        self, decisions: DecisionLog, cache: Cache, names: tuple[str, ...], default_queue: str
    ) -> None:
        self._log = decisions
        self._cache = cache
        self._start = Start(__version__, names, default_queue)
        self._lines: list[Line] = []
        self._cycle: Cycle | None = None

    def start(self) -> None:
        self._cache.journal = []

    def cut(
        self, number: int, now: float, configuration: str | None, skipped: Mapping[str, str]
    ) -> None:
        """Record the changes up to a cycle that is about to start."""
        if self._log.wants_start:
            self._lines = [self._start, *checkpoint(self._cache)]
        else:
            self._lines += self._cache.journal or ()
        self._cache.journal = []
        nothing = Decision([], {}, [], "")
        self._cycle = Cycle(number, now, configuration, dict(skipped), nothing)

    def decided(self, plan: Plan) -> None:
        """Record a plan; an empty plan is left out."""
        if plan.effects or plan.pipelined:
            self._log.put(self._lines, self._cycle, plan)
            self._lines = []
        elif len(self._lines) > MAX_CHANGES:
            self._log.put(self._lines, None, None)
            self._lines = []

    def restart(self) -> None:
        """Begin the next entry with a checkpoint: the cluster state was replaced."""
        self._lines = []
        self._log.restart()

    def keep(self, number: int) -> Path | None:
        """Keep the log of a cycle from rotation; see `DecisionLog.keep`."""
        return self._log.keep(number)

    async def stop(self) -> None:
        """Wait until the plans are written."""
        self._cache.journal = None
        await asyncio.to_thread(self._log.flush)


def _public(line: Line) -> Line:
    """Return a line without the copy of the object in kubectl's annotation."""
    if not isinstance(line, Put):
        return line
    annotations = line.object.metadata.annotations or {}
    if LAST_APPLIED not in annotations:
        return line
    kept = {key: value for key, value in annotations.items() if key != LAST_APPLIED}
    meta = msgspec.structs.replace(line.object.metadata, annotations=kept)
    return Put(line.kind, msgspec.structs.replace(line.object, metadata=meta))


def _nothing() -> None:
    """Do nothing: the last entry of a queue that is flushed."""


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)

"""Replay: decides the cycles of a decision log again, and reports where the plan differs.

    for outcome in replay(path, registry):
        print(outcome.number, outcome.is_same)

Equal code gives equal plans. So a log is a bug report that can be stepped through, and a change of
code or configuration can be tried on recorded cycles.
"""

from __future__ import annotations

import difflib
import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from hekla.scheduler.core import decide
from hekla.scheduler.errors import ReplayError
from hekla.scheduler.framework import config
from hekla.scheduler.framework.registry import Registry
from hekla.scheduler.framework.verdict import Verdict
from hekla.scheduler.service.decision_log import Cycle, Decision, Line, Start, described
from hekla.scheduler.state import changes
from hekla.scheduler.state.changes import KINDS, Change, Put
from hekla.scheduler.state.cluster import Cluster

MAX_LINE: Final = 64 * 1024 * 1024
_decoder = msgspec.json.Decoder(Line)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One cycle as recorded and as decided now."""

    number: int
    now: float
    recorded: Decision
    decided: Decision
    verdicts: dict[str, Verdict] = field(default_factory=dict)

    @property
    def is_same(self) -> bool:
        return not self.difference

    @property
    def difference(self) -> list[str]:
        """The plan as recorded (-) and as decided now (+); empty if they are equal."""
        return [
            line
            for line in difflib.unified_diff(_lines(self.recorded), _lines(self.decided), n=0)
            if not line.startswith(("---", "+++", "@@"))
        ]

    def count(self, kind: str) -> int:
        return sum(1 for effect in self.decided.effects if effect["type"] == kind)


def replay(
    path: Path, registry: Registry, *, only: int | None = None, conf: str | None = None
) -> Iterator[Outcome]:
    """Decide every recorded cycle again; with `conf`, by that configuration."""
    cluster: Cluster | None = None
    for line in _read(path):
        match line:
            case Start():
                cluster = Cluster(
                    scheduler_names=line.scheduler_names, default_queue=line.default_queue
                )
            case _ if cluster is None:
                raise ReplayError(f"{path}: it does not begin with a start; is it a decision log?")
            case Cycle():
                if only is None or line.number == only:
                    yield _again(cluster, line, registry, conf)
            case _:
                changes.attempt(cluster, _typed(line))


def _again(cluster: Cluster, cycle: Cycle, registry: Registry, conf: str | None) -> Outcome:
    text = cycle.configuration if conf is None else conf
    settings = config.default(registry) if text is None else config.parse(text, registry)
    plan = decide(cluster, settings, cycle.now, skipped=cycle.skipped)
    return Outcome(cycle.number, cycle.now, cycle.plan, described(plan), plan.verdicts)


def _read(path: Path) -> Iterator[Line]:
    try:
        with gzip.open(path, "rb") as file:
            while text := file.readline(MAX_LINE):
                yield _decoder.decode(text)
    except EOFError:
        return  # the process died while it wrote the last cycle; earlier ones are complete
    except (gzip.BadGzipFile, zlib.error, msgspec.DecodeError) as error:
        raise ReplayError(f"{path}: not a decision log, or damaged: {error}") from error


def _typed(change: Change) -> Change:
    if isinstance(change, Put):
        if change.kind not in KINDS:
            raise ReplayError(f"the log holds a {change.kind}; it was written by a newer hekla")
        return Put(change.kind, msgspec.convert(change.object, KINDS[change.kind].type))
    return change


def _lines(decision: Decision) -> list[str]:
    def text(value: Any) -> str:
        return msgspec.json.encode(value, order="deterministic").decode()

    effects = [
        f"{effect['type']} {text({k: v for k, v in effect.items() if k != 'type'})}"
        for effect in decision.effects
    ]
    pipelined = [f"pipelined {uid} on {node}" for uid, node in sorted(decision.pipelined.items())]
    return [*effects, *pipelined, f"verdicts {decision.verdicts}"]

"""Numbers for Prometheus: counters, gauges and histograms, and their text form.

    made = registry.counter("pods_created_total", "Pods made.", ("queue",))
    made.add("research")
    registry.render()

What a newcomer gets wrong: a label whose values come from objects (jobs, queues) fills memory
unless its series are removed with the object: call `keep` or `remove`. As a last resort a metric
takes no more than MAX_SERIES; what is beyond is dropped and counted.
"""

from __future__ import annotations

import bisect
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, TypeVar

Labels = tuple[str, ...]
Kind = Literal["counter", "gauge", "histogram"]
MAX_SERIES: Final = 20_000
MAX_LABEL_CHARS: Final = 256
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Metric:
    """What all three have: a name, labels, and series that come and go."""

    kind: Kind

    def __init__(self, name: str, text: str, labels: Sequence[str], dropped: Callable[[], None]):
        self.name = name
        self.text = text
        self.labels = tuple(labels)
        self._dropped = dropped

    def lines(self) -> Iterable[str]:
        raise NotImplementedError

    def _room(self, series: dict[Labels, object], values: Labels) -> bool:
        if len(values) != len(self.labels):
            raise ValueError(f"{self.name} has the labels {self.labels}, not {values}")
        if values in series or len(series) < MAX_SERIES:
            return True
        self._dropped()
        return False

    def _series(self, values: Labels, suffix: str = "", more: str = "") -> str:
        pairs = [f'{k}="{_quote(v)}"' for k, v in zip(self.labels, values, strict=True)]
        pairs += [more] if more else []
        return f"{self.name}{suffix}{{{','.join(pairs)}}}" if pairs else f"{self.name}{suffix}"


class Value(Metric):
    """A number per series."""

    def __init__(self, name: str, text: str, labels: Sequence[str], dropped: Callable[[], None]):
        super().__init__(name, text, labels, dropped)
        self.values: dict[Labels, float] = {}

    def get(self, *labels: str) -> float:
        return self.values.get(labels, 0.0)

    def remove(self, *labels: str) -> None:
        self.values.pop(labels, None)

    def keep(self, existing: Callable[[Labels], bool]) -> None:
        """Remove all series but those that `existing` knows."""
        self.values = {labels: value for labels, value in self.values.items() if existing(labels)}

    def lines(self) -> Iterable[str]:
        for labels, value in sorted(self.values.items()):
            yield f"{self._series(labels)} {_number(value)}"


class Counter(Value):
    kind: Kind = "counter"

    def add(self, *labels: str, by: float = 1.0) -> None:
        if self._room(self.values, labels):  # type: ignore[arg-type]
            self.values[labels] = self.values.get(labels, 0.0) + by

    def advance(self, *labels: str, to: float) -> None:
        """Take over a count that is kept elsewhere."""
        if self._room(self.values, labels):  # type: ignore[arg-type]
            self.values[labels] = max(to, self.values.get(labels, 0.0))


class Gauge(Value):
    kind: Kind = "gauge"

    def set(self, *labels: str, to: float) -> None:
        if self._room(self.values, labels):  # type: ignore[arg-type]
            self.values[labels] = to

    def replace(self, values: dict[Labels, float]) -> None:
        """All series at once; those not named are gone."""
        self.values = {}
        for labels, value in values.items():
            self.set(*labels, to=value)


class Histogram(Metric):
    kind: Kind = "histogram"

    def __init__(
        self,
        name: str,
        text: str,
        labels: Sequence[str],
        dropped: Callable[[], None],
        bounds: Sequence[float],
    ):
        super().__init__(name, text, labels, dropped)
        self.bounds = tuple(bounds)
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}

    def observe(self, value: float, *labels: str) -> None:
        if not self._room(self._counts, labels):  # type: ignore[arg-type]
            return
        counts = self._counts.setdefault(labels, [0] * (len(self.bounds) + 1))
        counts[bisect.bisect_left(self.bounds, value)] += 1
        self._sums[labels] = self._sums.get(labels, 0.0) + value

    def count(self, *labels: str) -> int:
        return sum(self._counts.get(labels, ()))

    def lines(self) -> Iterable[str]:
        for labels, counts in sorted(self._counts.items()):
            total = 0
            for bound, count in zip((*self.bounds, math.inf), counts, strict=True):
                total += count
                upto = f'le="{_number(bound)}"'
                yield f"{self._series(labels, '_bucket', upto)} {total}"
            yield f"{self._series(labels, '_sum')} {_number(self._sums[labels])}"
            yield f"{self._series(labels, '_count')} {total}"


M = TypeVar("M", bound=Metric)


class Registry:
    """The metrics of one process, in the order in which they were made."""

    def __init__(self) -> None:
        self.metrics: dict[str, Metric] = {}
        self._lost = self.counter(
            "hekla_metrics_dropped_total", "Values not kept because a metric has too many series."
        )
        self._cpu = self.counter("process_cpu_seconds_total", "CPU time of this process.")
        self._memory = self.gauge("process_resident_memory_bytes", "Memory of this process.")
        started = self.gauge("process_start_time_seconds", "When this process began, Unix time.")
        started.set(to=time.time())

    def counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        return self._add(Counter(name, text, labels, self._dropped))

    def gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
        return self._add(Gauge(name, text, labels, self._dropped))

    def histogram(
        self, name: str, text: str, bounds: Sequence[float], labels: Sequence[str] = ()
    ) -> Histogram:
        return self._add(Histogram(name, text, labels, self._dropped, bounds))

    def _add(self, metric: M) -> M:
        if metric.name in self.metrics:
            raise ValueError(f"there is a metric {metric.name} already")
        self.metrics[metric.name] = metric
        return metric

    def _dropped(self) -> None:
        self._lost.add()

    def render(self) -> bytes:
        """Everything in Prometheus' text form."""
        times = os.times()
        self._cpu.advance(to=times.user + times.system)
        self._memory.set(to=_resident_bytes())
        lines: list[str] = []
        for metric in self.metrics.values():
            lines += [
                f"# HELP {metric.name} {metric.text}",
                f"# TYPE {metric.name} {metric.kind}",
                *metric.lines(),
            ]
        return ("\n".join(lines) + "\n").encode()


def spread(low: float, high: float, count: int) -> tuple[float, ...]:
    """Bounds of a histogram from `low` to `high`, each the same factor above the one before."""
    factor = (high / low) ** (1 / (count - 1))
    return tuple(float(f"{low * factor**i:.4g}") for i in range(count))


def _resident_bytes() -> float:
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return float(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0.0  # no Linux: nothing to say


def _quote(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")[:MAX_LABEL_CHARS]


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))

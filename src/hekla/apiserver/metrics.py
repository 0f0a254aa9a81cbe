"""Counters of the server itself, in Prometheus' text form under Kubernetes' names."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable

_BUCKETS = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0)


class Metrics:
    """Few and cheap: one dictionary update a request."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, str, int], int] = defaultdict(int)
        self._buckets: dict[str, list[int]] = defaultdict(lambda: [0] * (len(_BUCKETS) + 1))
        self._seconds: dict[str, float] = defaultdict(float)
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}

    def now(self) -> float:
        return time.perf_counter()

    def gauge(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        self._gauges[name] = (help_text, read)

    def observe(self, verb: str, resource: str, code: int, started: float) -> None:
        # Paths come from clients: an unbounded label would be a way to fill our memory.
        if len(self._requests) > 4096 and (verb, resource, code) not in self._requests:
            resource = "other"
        self._requests[verb, resource, code] += 1
        if verb == "watch":
            return
        taken = time.perf_counter() - started
        self._seconds[verb] += taken
        buckets = self._buckets[verb]
        for index, bound in enumerate(_BUCKETS):
            if taken <= bound:
                buckets[index] += 1
        buckets[-1] += 1

    def render(self) -> bytes:
        lines = [
            "# HELP apiserver_request_total Requests by verb, resource and code.",
            "# TYPE apiserver_request_total counter",
        ]
        for (verb, resource, code), count in sorted(self._requests.items()):
            labels = f'verb="{_quote(verb)}",resource="{_quote(resource)}",code="{code}"'
            lines.append(f"apiserver_request_total{{{labels}}} {count}")
        name = "apiserver_request_duration_seconds"
        lines += [f"# HELP {name} Time to answer, watches aside.", f"# TYPE {name} histogram"]
        for verb, buckets in sorted(self._buckets.items()):
            for bound, count in zip((*map(str, _BUCKETS), "+Inf"), buckets, strict=True):
                lines.append(f'{name}_bucket{{verb="{_quote(verb)}",le="{bound}"}} {count}')
            lines.append(f'{name}_sum{{verb="{_quote(verb)}"}} {self._seconds[verb]}')
            lines.append(f'{name}_count{{verb="{_quote(verb)}"}} {buckets[-1]}')
        for gauge, (help_text, read) in sorted(self._gauges.items()):
            lines += [f"# HELP {gauge} {help_text}", f"# TYPE {gauge} gauge", f"{gauge} {read()}"]
        return ("\n".join(lines) + "\n").encode()


def _quote(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")[:128]

"""Metrics of the API server, under the names of kube-apiserver where it has one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from hekla.web.metrics import Counter, Histogram, Registry

DURATION_BUCKETS: Final = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0)
MAX_REQUEST_SERIES: Final = 4096
MAX_RESOURCE_CHARS: Final = 128


class Metrics:
    """Count requests and measure how long they take."""

    def __init__(self) -> None:
        self.registry = Registry()
        self._requests = self.registry.counter(
            "apiserver_request_total",
            "Requests by verb, resource and code.",
            ("verb", "resource", "code"),
        )
        self._duration = self.registry.histogram(
            "apiserver_request_duration_seconds",
            "Response time, watches excluded.",
            DURATION_BUCKETS,
            ("verb",),
        )
        self._counters: dict[tuple[str, str, int], Counter] = {}
        self._histograms: dict[str, Histogram] = {}

    def now(self) -> float:
        return time.perf_counter()

    def gauge(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        """Declare a gauge that is read on each scrape."""
        self.registry.gauge(name, documentation).set_function(read)

    def observe(self, verb: str, resource: str, code: int, started: float) -> None:
        """Record a request that began at `started`."""
        counter = self._counters.get((verb, resource, code))
        if counter is None:
            counter = self._counter(verb, resource[:MAX_RESOURCE_CHARS], code)
        counter.inc()
        if verb == "watch":
            return
        histogram = self._histograms.get(verb)
        if histogram is None:
            histogram = self._histograms[verb] = self._duration.labels(verb)
        histogram.observe(time.perf_counter() - started)

    def _counter(self, verb: str, resource: str, code: int) -> Counter:
        # Clients choose the path: without a limit they could fill the memory with series.
        if len(self._counters) > MAX_REQUEST_SERIES:
            resource = "other"
        counter = self._counters[verb, resource, code] = self._requests.labels(verb, resource, code)
        return counter

    def render(self) -> bytes:
        return self.registry.render()

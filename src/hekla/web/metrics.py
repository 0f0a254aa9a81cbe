"""A Prometheus registry per component, on top of `prometheus_client`.

    created = registry.counter("pods_created_total", "Created pods.", ("queue",))
    created.labels("research").inc()
    registry.render()

Note: a label whose values come from objects (jobs, queues) needs `keep_series` or `remove` when
the object is deleted. A metric holds at most MAX_SERIES series; updates of further series are
dropped and counted in `hekla_metrics_dropped_total`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Self, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE
from prometheus_client.metrics import Counter, Gauge, Histogram, MetricWrapperBase
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hekla.web import stalls

__all__ = ["CONTENT_TYPE", "Counter", "Gauge", "Histogram", "Labels", "Registry", "Snapshot"]

Labels = tuple[str, ...]
MAX_SERIES: Final = 20_000
M = TypeVar("M", bound=MetricWrapperBase)


class _Bounded(MetricWrapperBase):
    """A metric that returns unregistered children once it has MAX_SERIES series."""

    dropped: Counter | None = None

    def labels(self, *labelvalues: Any, **labelkwargs: Any) -> Self:
        if labelvalues in self._metrics or len(self._metrics) < MAX_SERIES:
            return super().labels(*labelvalues, **labelkwargs)
        if self.dropped is not None:
            self.dropped.inc()
        return type(self)(
            self._original_name,
            self._documentation,
            self._labelnames,
            registry=None,
            _labelvalues=labelvalues,
            **self._kwargs,
        )


class BoundedCounter(_Bounded, Counter):
    """A counter with at most MAX_SERIES series."""


class BoundedGauge(_Bounded, Gauge):
    """A gauge with at most MAX_SERIES series."""


class BoundedHistogram(_Bounded, Histogram):
    """A histogram with at most MAX_SERIES series."""


class Snapshot(Collector):
    """A metric whose series are read from the cluster and replaced as a whole."""

    def __init__(
        self,
        family: type[GaugeMetricFamily] | type[CounterMetricFamily],
        name: str,
        documentation: str,
        labels: Sequence[str],
        dropped: Counter,
    ) -> None:
        self._family, self._description = family, (name, documentation, labels)
        self._dropped = dropped
        self._values: Mapping[Labels, float] = {}

    def replace(self, values: Mapping[Labels, float]) -> None:
        """Set all series; a series that is not in `values` is removed."""
        self._values = values
        if len(values) > MAX_SERIES:
            self._dropped.inc(len(values) - MAX_SERIES)

    def collect(self) -> Iterable[Metric]:
        name, documentation, labelnames = self._description
        family = self._family(name, documentation, labels=labelnames)
        for labels, value in itertools.islice(self._values.items(), MAX_SERIES):
            family.add_metric(labels, value)
        yield family


class Registry(CollectorRegistry):
    """The metrics of one component and of its process."""

    def __init__(self) -> None:
        super().__init__()
        ProcessCollector(registry=self)
        self.declared: dict[str, Labels] = {}
        """Label names by metric."""
        self._unsuffixed: list[str] = []
        self._dropped = Counter(
            "hekla_metrics_dropped_total",
            "Updates dropped because a metric has too many series.",
            registry=self,
        )
        self.declared["hekla_metrics_dropped_total"] = ()
        self.register(stalls.STALLS)
        self.declared[stalls.NAME] = ()

    def counter(self, name: str, documentation: str, labels: Sequence[str] = ()) -> Counter:
        """Declare a counter; its name ends in `_total`."""
        return self._add(BoundedCounter(name, documentation, labels, registry=self), name, labels)

    def unsuffixed_counter(
        self, name: str, documentation: str, labels: Sequence[str] = ()
    ) -> Gauge:
        """Declare a counter whose name does not end in `_total`, as some of Volcano's.

        Note: `prometheus_client` appends `_total` to the name of each counter, so this is a gauge
        whose type `render` corrects. Only call `inc` on it.
        """
        self._unsuffixed.append(name)
        return self.gauge(name, documentation, labels)

    def gauge(self, name: str, documentation: str, labels: Sequence[str] = ()) -> Gauge:
        """Declare a gauge."""
        return self._add(BoundedGauge(name, documentation, labels, registry=self), name, labels)

    def histogram(
        self, name: str, documentation: str, buckets: Sequence[float], labels: Sequence[str] = ()
    ) -> Histogram:
        """Declare a histogram; `buckets` are the upper bounds without +Inf."""
        histogram = BoundedHistogram(name, documentation, labels, registry=self, buckets=buckets)
        return self._add(histogram, name, labels)

    def gauge_snapshot(self, name: str, documentation: str, labels: Sequence[str]) -> Snapshot:
        """Declare a gauge that is read from the cluster on each scrape."""
        return self._add_snapshot(GaugeMetricFamily, name, documentation, labels)

    def counter_snapshot(self, name: str, documentation: str, labels: Sequence[str]) -> Snapshot:
        """Declare a counter whose value another object keeps."""
        return self._add_snapshot(CounterMetricFamily, name, documentation, labels)

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics without the `_created` samples of `prometheus_client`."""
        for metric in super().collect():
            metric.samples = [s for s in metric.samples if not s.name.endswith("_created")]
            yield metric

    def render(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        text = generate_latest(self)
        for name in self._unsuffixed:
            text = text.replace(f"# TYPE {name} gauge".encode(), f"# TYPE {name} counter".encode())
        return text

    def _add_snapshot(
        self,
        family: type[GaugeMetricFamily] | type[CounterMetricFamily],
        name: str,
        documentation: str,
        labels: Sequence[str],
    ) -> Snapshot:
        snapshot = Snapshot(family, name, documentation, labels, self._dropped)
        self.register(snapshot)
        self.declared[name] = tuple(labels)
        return snapshot

    def _add(self, metric: M, name: str, labels: Sequence[str]) -> M:
        if isinstance(metric, _Bounded):
            metric.dropped = self._dropped
        self.declared[name] = tuple(labels)
        return metric


def series(metric: Collector) -> dict[Labels, float]:
    """Return the value of each series of a counter or gauge by its label values."""
    return {
        tuple(sample.labels.values()): sample.value
        for family in metric.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def keep_series(metric: MetricWrapperBase, exists: Callable[[Labels], bool]) -> None:
    """Remove the series for which `exists` is false."""
    for labels in series(metric):
        if not exists(labels):
            metric.remove(*labels)


def exponential_buckets(low: float, high: float, count: int) -> tuple[float, ...]:
    """Return `count` upper bounds from `low` to `high`, growing by one factor."""
    factor = (high / low) ** (1 / (count - 1))
    return tuple(float(f"{low * factor**i:.4g}") for i in range(count))

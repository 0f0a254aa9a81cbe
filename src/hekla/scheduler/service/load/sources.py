"""Sources of node loads: the requests to send, and the parsing of responses. No I/O.

One request (two for the adapter) serves all nodes; Volcano sends two for each node in turn.

Note: responses are untrusted. Every shape is checked, impossible numbers are left out, and a node
with only one of CPU and memory has no reading. Volcano takes the missing one as 0 and prefers that
node.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import msgspec

from hekla.kube import calls
from hekla.kube.calls import Call
from hekla.scheduler.framework.load_source import ADAPTOR, ELASTICSEARCH, METRICS_API, MetricsSource
from hekla.scheduler.state.load import AS_GIVEN_S, ByPeriod, Reading, percent
from hekla.units.quantity import QuantityError, parse_quantity
from hekla.units.timestamps import TimestampError, parse_time

T = TypeVar("T")

MOST_HOSTS: Final = 20_000
"""The most groups of one Elasticsearch response; it refuses more than 65,535."""
_LABEL: Final = "hekla"


class BadAnswer(Exception):
    """A response without usable data."""


@dataclass(frozen=True, slots=True)
class Known:
    """The cluster's nodes, as parsing needs them."""

    names: Container[str]
    allocatable: Callable[[str], tuple[float, float]]
    """CPU in thousandths and memory in bytes of a node."""


class Source(Protocol):
    """A kind of source."""

    def ask(self) -> list[Call]:
        """Return the requests to send at once."""
        ...

    def read(self, answers: Sequence[bytes], known: Known, now: float) -> ByPeriod:
        """Return the readings of the responses; BadAnswer if there are none."""
        ...


def make(settings: MetricsSource, periods_s: Iterable[int]) -> Source:
    """Return the configured source, for means over these periods if it supports them."""
    if settings.type == ADAPTOR:
        return Adaptor()
    if settings.type == METRICS_API:
        return MetricsApi()
    if settings.type == ELASTICSEARCH:
        return Elasticsearch(settings, tuple(sorted(periods_s)))
    return Prometheus(tuple(sorted(periods_s)))


class _Halves:
    """Joins CPU and memory of nodes; a node has a reading once it has both."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._cpu: dict[str, float] = {}
        self._memory: dict[str, float] = {}
        self._at: dict[str, float] = {}

    def put(self, host: str, what: str, value: float, at: float) -> None:
        """Add a number of a host; of two hosts that are the same node, the larger counts."""
        name, share = node_of(host, self._known.names), percent(value)
        if name is None or share is None:
            return
        half = self._cpu if what == "cpu" else self._memory
        half[name] = max(share, half.get(name, 0.0))
        self._at[name] = min(round(at, 3), self._at.get(name, at))

    def whole(self) -> dict[str, Reading]:
        return {
            name: Reading(cpu, self._memory[name], self._at[name])
            for name, cpu in sorted(self._cpu.items())
            if name in self._memory
        }


def node_of(host: str, names: Container[str]) -> str | None:
    """Return the node of a host name, with or without the port of its exporter."""
    if host in names:
        return host
    bare, colon, port = host.rpartition(":")
    if colon and port.isdecimal() and bare.strip("[]") in names:
        return bare.strip("[]")
    return None


# --- Prometheus -------------------------------------------------------------------------------

_CPU: Final = '100 - 100 * avg by (instance) (rate(node_cpu_seconds_total{mode="idle"}[5m]))'
_MEMORY: Final = (
    "100 * max by (instance) (1 - node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes)"
)


class _Sample(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str]


class _Vector(msgspec.Struct, rename="camel"):
    result_type: str = ""
    result: list[_Sample] = []


class _Queried(msgspec.Struct):
    status: str = ""
    error: str = ""
    data: _Vector = msgspec.field(default_factory=_Vector)


class Prometheus:
    """The query API, over node-exporter metrics; `instance` is the node's name."""

    def __init__(self, periods_s: tuple[int, ...]) -> None:
        self._periods_s = periods_s

    def ask(self) -> list[Call]:
        parts = []
        for period_s in self._periods_s:
            for what, expression in (("cpu", _CPU), ("memory", _MEMORY)):
                mean = f"avg_over_time(({expression})[{period_s}s:30s])"
                parts.append(f'label_replace({mean}, "{_LABEL}", "{what}/{period_s}", "", "")')
        return [calls.other("GET", "/api/v1/query", query=(("query", " or ".join(parts)),))]

    def read(self, answers: Sequence[bytes], known: Known, now: float) -> ByPeriod:
        answer = _decoded(answers[0], _Queried)
        if answer.status != "success":
            raise BadAnswer(f"the query failed: {answer.error[:200] or 'no reason is given'}")
        if answer.data.result_type != "vector":
            raise BadAnswer(f"the answer is a {answer.data.result_type[:20]!r}, not a vector")
        halves = {str(period_s): _Halves(known) for period_s in self._periods_s}
        for sample in answer.data.result:
            what, _, period = sample.metric.get(_LABEL, "").partition("/")
            if period in halves and what in ("cpu", "memory"):
                value = _number(sample.value[1])
                halves[period].put(sample.metric.get("instance", ""), what, value, now)
        return {int(period): each.whole() for period, each in halves.items()}


# --- Elasticsearch ----------------------------------------------------------------------------


class _Mean(msgspec.Struct):
    value: float | None = None


class _Bucket(msgspec.Struct):
    key: str
    cpu: _Mean
    memory: _Mean


class _Buckets(msgspec.Struct):
    buckets: list[_Bucket] = []


class _Hosts(msgspec.Struct):
    hosts: _Buckets


class _Searched(msgspec.Struct):
    aggregations: dict[str, _Hosts]


class Elasticsearch:
    """Metricbeat documents: fractions, grouped by host."""

    def __init__(self, settings: MetricsSource, periods_s: tuple[int, ...]) -> None:
        self._settings = settings
        self._periods_s = periods_s

    def ask(self) -> list[Call]:
        hosts = {
            "terms": {"field": self._settings.hostname_field, "size": MOST_HOSTS},
            "aggs": {
                "cpu": {"avg": {"field": "host.cpu.usage"}},
                "memory": {"avg": {"field": "system.memory.actual.used.pct"}},
            },
        }
        body = {
            "size": 0,
            "query": _since(max(self._periods_s)),
            "aggs": {
                str(period_s): {"filter": _since(period_s), "aggs": {"hosts": hosts}}
                for period_s in self._periods_s
            },
        }
        return [calls.other("POST", f"/{self._settings.index}/_search", body=body)]

    def read(self, answers: Sequence[bytes], known: Known, now: float) -> ByPeriod:
        found: dict[int, dict[str, Reading]] = {}
        answer = _decoded(answers[0], _Searched)
        for period_s in self._periods_s:
            halves = _Halves(known)
            group = answer.aggregations.get(str(period_s))
            for bucket in group.hosts.buckets if group is not None else ():
                for what, mean in (("cpu", bucket.cpu), ("memory", bucket.memory)):
                    if mean.value is not None:
                        halves.put(bucket.key, what, 100.0 * mean.value, now)
            found[period_s] = halves.whole()
        return found


def _since(period_s: int) -> dict[str, Any]:
    return {"range": {"@timestamp": {"gte": f"now-{period_s}s", "lt": "now"}}}


# --- through the API server -------------------------------------------------------------------


class _Described(msgspec.Struct):
    name: str = ""


class _MetricValue(msgspec.Struct, rename="camel"):
    described_object: _Described
    value: str | int | float
    timestamp: str | None = None


class _MetricValues(msgspec.Struct):
    items: list[_MetricValue] = []


class Adaptor:
    """custom.metrics.k8s.io, with two rules of the Prometheus adapter that give fractions."""

    METRICS: Final = {"cpu": "node_cpu_usage_avg", "memory": "node_memory_usage_avg"}

    def ask(self) -> list[Call]:
        return [
            calls.other("GET", f"/apis/custom.metrics.k8s.io/v1beta1/nodes/*/{metric}")
            for metric in self.METRICS.values()
        ]

    def read(self, answers: Sequence[bytes], known: Known, now: float) -> ByPeriod:
        halves = _Halves(known)
        for what, answer in zip(self.METRICS, answers, strict=True):
            for item in _decoded(answer, _MetricValues).items:
                value = 100.0 * _amount(item.value, 1.0)
                halves.put(item.described_object.name, what, value, _stamp(item.timestamp, now))
        return {AS_GIVEN_S: halves.whole()}


class _NodeMetrics(msgspec.Struct):
    metadata: _Described
    usage: Mapping[str, str | int | float]
    timestamp: str | None = None


class _NodeMetricsList(msgspec.Struct):
    items: list[_NodeMetrics] = []


class MetricsApi:
    """metrics.k8s.io as metrics-server serves it: amounts, converted to percent."""

    def ask(self) -> list[Call]:
        return [calls.other("GET", "/apis/metrics.k8s.io/v1beta1/nodes")]

    def read(self, answers: Sequence[bytes], known: Known, now: float) -> ByPeriod:
        halves = _Halves(known)
        for item in _decoded(answers[0], _NodeMetricsList).items:
            name, at = item.metadata.name, _stamp(item.timestamp, now)
            if name not in known.names:
                continue
            cpu, memory = known.allocatable(name)
            for what, scale, of in (("cpu", 1000.0, cpu), ("memory", 1.0, memory)):
                if what in item.usage and of > 0:
                    halves.put(name, what, 100.0 * _amount(item.usage[what], scale) / of, at)
        return {AS_GIVEN_S: halves.whole()}


# --- reading ----------------------------------------------------------------------------------


def _decoded(text: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadAnswer(f"the answer cannot be read: {error}") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _amount(given: str | int | float, scale: float) -> float:
    try:
        return float(parse_quantity(given).nanos) / 1e9 * scale
    except (QuantityError, OverflowError):
        return float("nan")


def _stamp(text: str | None, now: float) -> float:
    """Return the time of a measurement, never in the future, or it would never be stale."""
    try:
        return now if text is None else min(parse_time(text), now)
    except TimestampError:
        return now

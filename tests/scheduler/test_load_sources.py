"""Load sources: requests, and the parsing of any response."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.scheduler.framework.load_source import MetricsSource
from hekla.scheduler.service.load.sources import BadAnswer, Known, make, node_of
from hekla.scheduler.state.load import Reading, percent

NOW = 1_700_000_000.0
KNOWN = Known(("n1", "n2", "10.0.0.3", "fe80::1"), lambda name: (4000.0, 16.0 * 2**30))
Found = dict[str, tuple[float, float]]


def sample(instance: str, what: str, value: object, **labels: str) -> dict[str, Any]:
    return {
        "metric": {"instance": instance, "hekla": what, **labels},
        "value": [NOW, str(value)],
    }


def vector(*samples: dict[str, Any]) -> bytes:
    data = {"resultType": "vector", "result": list(samples)}
    return json.dumps({"status": "success", "data": data}).encode()


def read(kind: str, *answers: bytes, period: int = 600, periods: Sequence[int] = (600,)) -> Found:
    source = make(MetricsSource(type=kind, address="http://x"), periods)
    found = source.read(answers, KNOWN, NOW)
    return {name: (each.cpu, each.memory) for name, each in found[period].items()}


def test_one_query_asks_for_all_nodes_and_all_periods() -> None:
    (call,) = make(MetricsSource(address="http://x"), (600, 300)).ask()
    assert (call.method, call.path) == ("GET", "/api/v1/query")
    ((_, query),) = call.query
    for period in ("600s:30s", "300s:30s"):
        assert query.count(f"[{period}]") == 2
    assert 'rate(node_cpu_seconds_total{mode="idle"}[5m])' in query
    assert "node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes" in query


def test_instances_are_nodes_with_or_without_the_port_of_what_measured_them() -> None:
    answer = vector(
        sample("n1", "cpu/600", 12.344),
        sample("n1", "memory/600", 50),
        sample("10.0.0.3:9100", "cpu/600", 70),
        sample("10.0.0.3:9100", "memory/600", 20),
        sample("[fe80::1]:9100", "cpu/600", 1),
        sample("[fe80::1]:9100", "memory/600", 2),
        sample("stranger:9100", "cpu/600", 1),
        sample("stranger:9100", "memory/600", 1),
    )
    assert read("prometheus", answer) == {
        "n1": (12.34, 50.0),
        "10.0.0.3": (70.0, 20.0),
        "fe80::1": (1.0, 2.0),
    }
    assert node_of("n1:x", ("n1",)) is None


def test_of_two_instances_of_one_node_the_busier_counts() -> None:
    samples = [sample(name, f"{what}/600", value) for name, value in (("n1", 60), ("n1:9100", 30))
               for what in ("cpu", "memory")]  # fmt: skip
    assert read("prometheus", vector(*samples)) == {"n1": (60.0, 60.0)}


def test_readings_are_stored_by_period() -> None:
    samples = [sample("n1", f"{what}/{period}", period / 10) for what in ("cpu", "memory")
               for period in (300, 600, 900)]  # fmt: skip
    both = (300, 600)
    assert read("prometheus", vector(*samples), period=300, periods=both) == {"n1": (30.0, 30.0)}
    assert read("prometheus", vector(*samples), period=600, periods=both) == {"n1": (60.0, 60.0)}


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-40", "1e300", "many", ""])
def test_an_impossible_load_leaves_the_node_without_reading(value: str) -> None:
    answer = vector(
        sample("n1", "cpu/600", value),
        sample("n1", "memory/600", 50),
        sample("n2", "cpu/600", 50),
        sample("n2", "memory/600", 50),
    )
    assert read("prometheus", answer) == {"n2": (50.0, 50.0)}


def test_a_node_with_cpu_or_memory_load_only_has_no_reading() -> None:
    assert read("prometheus", vector(sample("n1", "cpu/600", 1))) == {}


def test_slightly_out_of_range_loads_are_clamped() -> None:
    assert [percent(value) for value in (-0.3, 0.0, 99.999, 101.0, 400.0)] == [
        0.0, 0.0, 100.0, 100.0, 100.0,
    ]  # fmt: skip


BAD = {
    "no JSON": (b"<html>", "cannot be read"),
    "another shape": (b'{"status": "success", "data": {"result": [1]}}', "cannot be read"),
    "a list": (b"[]", "cannot be read"),
    "brackets without end": (b"[" * 100_000, "cannot be read"),
    "an error": (b'{"status": "error", "error": "parse error"}', "the query failed: parse error"),
    "a matrix": (
        b'{"status": "success", "data": {"resultType": "matrix", "result": []}}',
        "the answer is a 'matrix'",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_an_invalid_response_is_refused(case: str) -> None:
    body, want = BAD[case]
    with pytest.raises(BadAnswer, match=want):
        read("prometheus", body)


@given(st.binary(max_size=200) | st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["status", "data", "result", "resultType", "metric", "value", "items",
                         "aggregations", "600", "hosts", "buckets", "key", "cpu", "usage"]),
        inner, max_size=4),
    max_leaves=12,
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_any_response_is_parsed_or_refused(body: bytes) -> None:
    for kind in ("prometheus", "elasticsearch", "prometheus_adaptor", "metrics-api"):
        source = make(MetricsSource(type=kind, address="http://x"), (600,))
        try:
            found = source.read([body] * len(source.ask()), KNOWN, NOW)
        except BadAnswer:
            continue
        for readings in found.values():
            assert all(0 <= r.cpu <= 100 and 0 <= r.memory <= 100 for r in readings.values())


def test_elasticsearch_gives_fractions_in_one_request() -> None:
    settings = MetricsSource(type="elasticsearch", address="http://x", hostname_field="agent.name")
    (call,) = make(settings, (600,)).ask()
    assert (call.method, call.path) == ("POST", "/metricbeat-*/_search")
    asked = json.loads(call.body or b"")
    assert asked["size"] == 0
    hosts = asked["aggs"]["600"]["aggs"]["hosts"]
    assert hosts["terms"]["field"] == "agent.name"
    buckets = [
        {"key": "n1", "doc_count": 9, "cpu": {"value": 0.25}, "memory": {"value": 0.5}},
        {"key": "n2", "doc_count": 9, "cpu": {"value": None}, "memory": {"value": 0.5}},
    ]
    body = {"aggregations": {"600": {"doc_count": 9, "hosts": {"buckets": buckets}}}}
    assert read("elasticsearch", json.dumps(body).encode()) == {"n1": (25.0, 50.0)}


def test_the_adapter_gives_fractions_with_times() -> None:
    source = make(MetricsSource(type="prometheus_adaptor"), (600,))
    assert [call.path for call in source.ask()] == [
        "/apis/custom.metrics.k8s.io/v1beta1/nodes/*/node_cpu_usage_avg",
        "/apis/custom.metrics.k8s.io/v1beta1/nodes/*/node_memory_usage_avg",
    ]

    def items(value: str, stamp: str) -> bytes:
        item = {"describedObject": {"name": "n1"}, "timestamp": stamp, "value": value}
        return json.dumps({"kind": "MetricValueList", "items": [item]}).encode()

    past, future = "2023-11-14T22:12:20Z", "2033-01-01T00:00:00Z"
    found = source.read([items("250m", past), items("500m", future)], KNOWN, NOW)
    assert found == {0: {"n1": Reading(25.0, 50.0, NOW - 60)}}


def test_metrics_api_amounts_are_converted_to_percent() -> None:
    usage = {"cpu": "1500000000n", "memory": "4194304Ki"}
    items = [
        {"metadata": {"name": "n1"}, "timestamp": "2023-11-14T22:13:20Z", "usage": usage},
        {"metadata": {"name": "stranger"}, "usage": usage},
        {"metadata": {"name": "n2"}, "usage": {"cpu": "bad", "memory": "1Gi"}},
    ]
    answer = json.dumps({"items": items}).encode()
    assert read("metrics-api", answer, period=0) == {"n1": (37.5, 25.0)}

"""The registry: text format, removal of series and the series limit."""

from __future__ import annotations

import pytest

from hekla.web import metrics
from hekla.web.metrics import Registry, exponential_buckets, keep_series, series


def test_text_format_has_names_labels_and_buckets() -> None:
    registry = Registry()
    registry.counter("made_total", "Objects made.", ("queue",)).labels('a"b\\c\nd').inc(2)
    registry.gauge("level", "How high.").set(0.5)
    took = registry.histogram("took", "How long.", (1, 2.5), ("verb",)).labels("get")
    for value in (0.5, 1, 2, 9):
        took.observe(value)
    lines = registry.render().decode().splitlines()
    assert "# HELP made_total Objects made." in lines
    assert "# TYPE made_total counter" in lines
    assert 'made_total{queue="a\\"b\\\\c\\nd"} 2.0' in lines
    assert "level 0.5" in lines
    assert [line for line in lines if line.startswith("took")] == [
        'took_bucket{le="1.0",verb="get"} 2.0',
        'took_bucket{le="2.5",verb="get"} 3.0',
        'took_bucket{le="+Inf",verb="get"} 4.0',
        'took_count{verb="get"} 4.0',
        'took_sum{verb="get"} 12.5',
    ]
    assert "_created" not in registry.render().decode()


def test_counter_without_total_suffix_keeps_its_name_and_type() -> None:
    registry = Registry()
    registry.unsuffixed_counter("retry_counts", "Retries.", ("job",)).labels("a").inc()
    text = registry.render().decode()
    assert "# TYPE retry_counts counter\n" in text
    assert 'retry_counts{job="a"} 1.0\n' in text


def test_registry_has_the_metrics_of_the_process() -> None:
    value = Registry().get_sample_value
    assert (value("process_resident_memory_bytes") or 0) > 0
    assert (value("process_start_time_seconds") or 0) > 0
    assert value("process_cpu_seconds_total") is not None


def test_series_are_removed_with_their_object() -> None:
    registry = Registry()
    gauge = registry.gauge("g", "G.", ("queue",))
    gauge.labels("a").set(1)
    gauge.labels("b").set(2)
    keep_series(gauge, lambda labels: labels[0] == "b")
    assert series(gauge) == {("b",): 2}


def test_snapshot_replaces_all_series() -> None:
    registry = Registry()
    snapshot = registry.gauge_snapshot("g", "G.", ("queue",))
    snapshot.replace({("a",): 1.0, ("b",): 2.0})
    snapshot.replace({("c",): 3.0})
    assert series(snapshot) == {("c",): 3}
    counter = registry.counter_snapshot("c_total", "C.", ("queue",))
    counter.replace({("a",): 4.0})
    assert registry.get_sample_value("c_total", {"queue": "a"}) == 4


def test_updates_beyond_the_series_limit_are_dropped_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics, "MAX_SERIES", 2)
    registry = Registry()
    counter = registry.counter("c_total", "C.", ("job",))
    for job in ("a", "b", "c", "a"):
        counter.labels(job).inc()
    assert series(counter) == {("a",): 2, ("b",): 1}
    assert registry.get_sample_value("hekla_metrics_dropped_total") == 1
    histogram = registry.histogram("h", "H.", (1, 2), ("job",))
    for job in ("a", "b", "c"):
        histogram.labels(job).observe(1)
    assert registry.get_sample_value("h_count", {"job": "c"}) is None
    snapshot = registry.gauge_snapshot("g", "G.", ("job",))
    snapshot.replace({("a",): 1.0, ("b",): 2.0, ("c",): 3.0})
    assert series(snapshot) == {("a",): 1, ("b",): 2}
    assert registry.get_sample_value("hekla_metrics_dropped_total") == 3


def test_duplicate_name_and_wrong_label_count_are_refused() -> None:
    registry = Registry()
    counter = registry.counter("c_total", "C.", ("job",))
    with pytest.raises(ValueError, match="Duplicated"):
        registry.gauge("c_total", "C.")
    with pytest.raises(ValueError, match="Incorrect label count"):
        counter.labels("a", "b")


def test_exponential_buckets_grow_by_one_factor() -> None:
    assert exponential_buckets(1, 1000, 4) == (1.0, 10.0, 100.0, 1000.0)

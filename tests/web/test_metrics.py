"""Prometheus' text form, and the bounds on what is kept."""

from __future__ import annotations

import pytest

from hekla.web import metrics
from hekla.web.metrics import Registry, spread


def test_the_text_is_what_prometheus_reads() -> None:
    registry = Registry()
    registry.counter("made_total", "Things made.", ("queue",)).add('a"b\\c\nd', by=2)
    registry.gauge("level", "How high.").set(to=0.5)
    took = registry.histogram("took", "How long.", (1, 2.5), ("verb",))
    for value in (0.5, 1, 2, 9):
        took.observe(value, "get")
    lines = registry.render().decode().splitlines()
    assert "# HELP made_total Things made." in lines
    assert "# TYPE made_total counter" in lines
    assert 'made_total{queue="a\\"b\\\\c\\nd"} 2' in lines
    assert "level 0.5" in lines
    assert [line for line in lines if line.startswith("took")] == [
        'took_bucket{verb="get",le="1"} 2',
        'took_bucket{verb="get",le="2.5"} 3',
        'took_bucket{verb="get",le="+Inf"} 4',
        'took_sum{verb="get"} 12.5',
        'took_count{verb="get"} 4',
    ]


def test_series_go_when_their_object_does() -> None:
    gauge = Registry().gauge("g", "G.", ("queue",))
    gauge.set("a", to=1)
    gauge.set("b", to=2)
    gauge.keep(lambda labels: labels[0] == "b")
    assert list(gauge.lines()) == ['g{queue="b"} 2']
    gauge.replace({("c",): 3.0})
    gauge.remove("nobody")
    assert list(gauge.lines()) == ['g{queue="c"} 3']


def test_a_metric_takes_no_more_series_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MAX_SERIES", 2)
    registry = Registry()
    counter = registry.counter("c_total", "C.", ("job",))
    for job in ("a", "b", "c", "a"):
        counter.add(job)
    assert [counter.get(job) for job in ("a", "b", "c")] == [2, 1, 0]
    assert b"hekla_metrics_dropped_total 1\n" in registry.render()


def test_two_metrics_of_one_name_and_wrong_labels_are_mistakes() -> None:
    registry = Registry()
    counter = registry.counter("c_total", "C.", ("job",))
    with pytest.raises(ValueError, match="already"):
        registry.gauge("c_total", "C.")
    with pytest.raises(ValueError, match="has the labels"):
        counter.add("a", "b")


def test_bounds_spread_evenly_by_factor() -> None:
    assert spread(1, 1000, 4) == (1.0, 10.0, 100.0, 1000.0)

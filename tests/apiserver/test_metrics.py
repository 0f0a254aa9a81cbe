"""Metrics of the API server."""

from __future__ import annotations

import pytest

from hekla.apiserver import metrics
from hekla.apiserver.metrics import Metrics


def test_requests_are_counted_by_verb_resource_and_code() -> None:
    subject = Metrics()
    for code in (200, 200, 404):
        subject.observe("get", "pods", code, subject.now())
    value = subject.registry.get_sample_value
    labels = {"verb": "get", "resource": "pods"}
    assert value("apiserver_request_total", {**labels, "code": "200"}) == 2
    assert value("apiserver_request_total", {**labels, "code": "404"}) == 1
    assert value("apiserver_request_duration_seconds_count", {"verb": "get"}) == 3


def test_duration_of_watches_is_not_measured() -> None:
    subject = Metrics()
    subject.observe("watch", "pods", 200, subject.now())
    value = subject.registry.get_sample_value
    assert value("apiserver_request_duration_seconds_count", {"verb": "watch"}) is None


def test_resources_beyond_the_limit_are_counted_as_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MAX_REQUEST_SERIES", 1)
    subject = Metrics()
    for resource in ("a", "b", "c", "d", "a"):
        subject.observe("get", resource, 404, subject.now())
    value = subject.registry.get_sample_value
    labels = {"verb": "get", "code": "404"}
    assert value("apiserver_request_total", {**labels, "resource": "a"}) == 2
    assert value("apiserver_request_total", {**labels, "resource": "other"}) == 2


def test_gauge_is_read_on_each_scrape() -> None:
    subject = Metrics()
    values = [1.0]
    subject.gauge("level", "Level.", lambda: values[0])
    assert b"level 1.0\n" in subject.render()
    values[0] = 2.0
    assert b"level 2.0\n" in subject.render()

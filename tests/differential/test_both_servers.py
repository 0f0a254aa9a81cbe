"""A short run of the same requests against both servers; the long run is `make differential`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.differential.__main__ import report
from tools.differential.normal import Normal, differences
from tools.differential.run import Comparison, Totals
from tools.differential.servers import both
from tools.kube.cluster import parts_for
from tools.kube.gobuild import missing

REQUESTS = 300
SEED = 7


def test_both_servers_give_equal_responses(tmp_path: Path) -> None:
    reason = missing(parts_for(controllers=True))
    if reason:
        pytest.skip(reason)
    totals = Totals()
    with both(tmp_path) as (real, ours):
        Comparison(real, ours, totals).run(SEED, REQUESTS)
    assert totals.requests >= REQUESTS
    assert not totals.findings, report(totals)


def test_random_names_are_distinguished_but_not_compared() -> None:
    one, other = Normal(), Normal()
    first = {"metadata": {"uid": "11111111-1111-1111-1111-111111111111", "resourceVersion": "7"}}
    second = {"metadata": {"uid": "22222222-2222-2222-2222-222222222222", "resourceVersion": "9"}}
    assert one.of(first) == other.of(second)
    assert one.of(second) != one.of(first)


def test_a_difference_names_its_path() -> None:
    found = differences({"a": [{"b": 1}]}, {"a": [{"b": 2}], "c": None})
    assert [item.path for item in found] == [".a[0].b", ".c"]

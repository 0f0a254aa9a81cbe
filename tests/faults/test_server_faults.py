"""Servers that reject, lose responses, repeat events, restart and compact while gangs run."""

from __future__ import annotations

from collections import Counter

import pytest
from tools.faults.proxy import Fault, WatchFaults, anything

from tests.faults.crowd import Crowd
from tests.faults.sites import RealSite, Site
from tests.faults.test_failover import check
from tests.faults.waiting import until

MOST_ROUNDS = 30


def refusals() -> list[Fault]:
    """Return each kind of fault for some of all requests, leases included."""
    return [
        Fault(anything, status=429, chance=0.06),
        Fault(anything, status=500, chance=0.06),
        Fault(anything, status=500, passed_on=True, chance=0.06),
        Fault(anything, drop=True, chance=0.04),
        Fault(anything, drop=True, passed_on=True, chance=0.06),
        Fault(anything, delay_s=0.3, chance=0.2),
    ]


def happened(site: Site) -> Counter[str]:
    """Return the faults so far."""
    return sum((proxy.counts for proxy in site.crew.proxies), Counter())


def submit_until(site: Site, crowd: Crowd, before: Counter[str], kinds: set[str]) -> None:
    """Submit gangs until all these faults have happened; the number of requests varies."""
    for _ in range(MOST_ROUNDS):
        missing = kinds - (happened(site) - before).keys()
        if not missing:
            return
        crowd.submit(2)
        crowd.until_ended(len(crowd.sizes) - 2)
    raise AssertionError(f"{missing} never happened: {happened(site) - before}")


def test_rejections_and_lost_responses_lose_no_job_and_repeat_nothing(site: Site) -> None:
    before = happened(site)
    with Crowd(site.config, site.new_namespace(), seed=4) as crowd:
        for proxy in site.crew.proxies:
            proxy.faults = refusals()
        crowd.submit(8)
        crowd.until_ended(6)
        submit_until(
            site, crowd, before,
            {"429 before", "500 before", "500 after", "dropped before", "dropped after"},
        )  # fmt: skip
        for proxy in site.crew.proxies:
            proxy.faults = ()
        crowd.until_ended()
    check(site)


def test_late_and_repeated_events_change_nothing(site: Site) -> None:
    before = happened(site)
    with Crowd(site.config, site.new_namespace(), seed=5) as crowd:
        for proxy in site.crew.proxies:
            proxy.watch_faults = WatchFaults(repeat=0.3, replay=0.2, delay_s=0.1, cut=0.02)
        crowd.submit(6)
        crowd.until_ended()
        submit_until(
            site, crowd, before,
            {"events repeated", "events replayed", "events delayed", "watches cut"},
        )  # fmt: skip
        for proxy in site.crew.proxies:
            proxy.watch_faults = WatchFaults()
    check(site)


@pytest.mark.faults
@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_components_reconnect_to_a_restarted_server(site: Site, kill: bool) -> None:
    with Crowd(site.config, site.new_namespace(), seed=6) as crowd:
        crowd.submit(4)
        crowd.until_ended(1)
        site.restart_server(kill=kill)
        crowd.submit(4)
        crowd.until_ended()
    check(site)


# hekla's server has no separate store: it is killed above.
@pytest.mark.faults
@pytest.mark.parametrize("site", ["real"], indirect=True)
def test_components_recover_from_a_killed_store(site: Site) -> None:
    assert isinstance(site, RealSite)
    with Crowd(site.config, site.new_namespace(), seed=7) as crowd:
        crowd.submit(4)
        crowd.until_ended(1)
        site.restart_etcd()
        crowd.submit(4)
        crowd.until_ended()
    check(site)


@pytest.mark.faults
@pytest.mark.parametrize("site", ["real"], indirect=True)
def test_compacted_history_causes_a_new_list(site: Site) -> None:
    """Watches resume at a compacted revision (410)."""
    assert isinstance(site, RealSite)
    with Crowd(site.config, site.new_namespace(), seed=8) as crowd:
        crowd.submit(2)
        crowd.until_ended()
        before = happened(site)
        for proxy in site.crew.proxies:
            proxy.hold_watches()
        crowd.submit(4)
        site.compact()
        for proxy in site.crew.proxies:
            proxy.release_watches()
        until(lambda: (happened(site) - before)["410"])
        crowd.until_ended()
    check(site)

"""Random faults from a seed, one after the other, while users submit gangs."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from tools.faults.proxy import WatchFaults

from tests.faults.crowd import Crowd
from tests.faults.sites import Site
from tests.faults.test_failover import COMPONENTS, check, follows, led
from tests.faults.test_server_faults import refusals

ROUNDS = 8
Act = Callable[[Site, Random], None]


def kill_a_leader(site: Site, draw: Random) -> None:
    site.crew.leader(draw.choice(list(COMPONENTS))).kill()


def kill_everybody(site: Site, draw: Random) -> None:
    for replica in site.crew.replicas:
        replica.kill()


def freeze_a_leader(site: Site, draw: Random) -> None:
    leader = site.crew.leader(draw.choice(list(COMPONENTS)))
    before = led(leader)
    leader.freeze()
    follows(site, leader, before)
    leader.thaw()


def cut_a_leader_off(site: Site, draw: Random) -> None:
    leader = site.crew.leader(draw.choice(list(COMPONENTS)))
    before = led(leader)
    leader.proxy.cut()
    follows(site, leader, before)
    leader.proxy.heal()


def break_connections(site: Site, draw: Random) -> None:
    for proxy in site.crew.proxies:
        proxy.break_connections()


def refuse(site: Site, draw: Random) -> None:
    for proxy in site.crew.proxies:
        proxy.faults = refusals()


def meddle_with_watches(site: Site, draw: Random) -> None:
    for proxy in site.crew.proxies:
        proxy.watch_faults = WatchFaults(repeat=0.2, replay=0.2, delay_s=0.05, cut=0.01)


def calm(site: Site, draw: Random) -> None:
    for proxy in site.crew.proxies:
        proxy.faults, proxy.watch_faults = (), WatchFaults()


def restart_the_server(site: Site, draw: Random) -> None:
    site.restart_server(kill=True)


ACTS: tuple[Act, ...] = (
    kill_a_leader,
    kill_everybody,
    freeze_a_leader,
    cut_a_leader_off,
    break_connections,
    refuse,
    meddle_with_watches,
    calm,
    restart_the_server,
)


@pytest.mark.faults
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_every_gang_runs_once_and_complete_under_random_faults(site: Site, seed: int) -> None:
    draw = Random(seed)
    with Crowd(site.config, site.new_namespace(), seed) as crowd:
        for act in draw.choices(ACTS, k=ROUNDS):
            crowd.submit(draw.randrange(1, 4))
            print(site.name, seed, act.__name__)
            act(site, draw)
        calm(site, draw)
        crowd.until_ended()
    check(site)

"""Which news wakes the scheduler, and which only has to be written down some time."""

from __future__ import annotations

import pytest

from hekla.scheduler import wire
from hekla.scheduler.cache import Cache
from hekla.scheduler.cluster import Cluster
from hekla.testing import pod
from hekla.units.clock import ManualClock

WAITING = pod("p", cpu=1)
BOUND = pod("p", cpu=1, node="n1", phase="Pending")
RUNNING = pod("p", cpu=1, node="n1")
NEWS: dict[str, tuple[wire.Pod | None, wire.Pod | None, str]] = {
    "a new pod": (None, WAITING, "wake"),
    "a pod that is bound": (WAITING, BOUND, "notice"),
    "a pod that runs": (BOUND, RUNNING, "notice"),
    "a pod that ends": (RUNNING, pod("p", cpu=1, node="n1", phase="Succeeded"), "wake"),
    "a pod that is told to leave": (RUNNING, pod("p", cpu=1, node="n1", deleting=True), "wake"),
    "a pod that asks for less": (WAITING, pod("p", cpu="500m"), "wake"),
    "a pod with a new label": (RUNNING, pod("p", cpu=1, node="n1", labels={"a": "b"}), "wake"),
    "a pod that is gone": (RUNNING, None, "wake"),
    "a pod that says the same": (RUNNING, pod("p", cpu=1, node="n1"), ""),
}


@pytest.mark.parametrize("case", NEWS)
async def test_only_what_a_decision_may_depend_on_wakes_the_scheduler(case: str) -> None:
    old, new, want = NEWS[case]
    heard: list[str] = []
    cache = Cache(
        None,  # type: ignore[arg-type]
        Cluster(),
        lambda: heard.append("wake"),
        lambda: heard.append("notice"),
        clock=ManualClock(),
    )
    tell = cache._handler("Pod")
    if old is not None:
        tell("ADDED", None, old)
        heard.clear()
    tell("DELETED" if new is None else "MODIFIED", old, new)
    assert heard == ([want] if want else [])
    known = cache.cluster.tasks.get("default-p")
    assert (known is None) == (new is None), "whatever it wakes, it is known at once"
    if new is not None and known is not None:
        assert known.node_name == new.spec.node_name

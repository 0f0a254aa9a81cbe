"""Which watch events start a cycle, and which only update status later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from hekla.api import core
from hekla.api.wellknown import JOB_ALLOCATED_HYPERNODE
from hekla.scheduler.service.cache import Cache
from hekla.scheduler.state import wire
from hekla.scheduler.state.changes import KINDS, GroupWritten, Kind
from hekla.scheduler.state.cluster import Cluster
from hekla.testing import gang, node, pod
from hekla.testing.objects import GroupBuilder
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
    cache = _cache(heard)
    emit = cache._handler("Pod")
    if old is not None:
        emit("ADDED", None, old)
        heard.clear()
    emit("DELETED" if new is None else "MODIFIED", old, new)
    assert heard == ([want] if want else [])
    known = cache.cluster.tasks.get("default-p")
    assert (known is None) == (new is None), "whatever it wakes, it is known at once"
    if new is not None and known is not None:
        assert known.node_name == new.spec.node_name


def written(
    *, domain: str = "r1", annotations: Mapping[str, str] | None = None, **more: Any
) -> GroupBuilder:
    notes = {JOB_ALLOCATED_HYPERNODE: domain, **(annotations or {})}
    return gang("g", **{"phase": "Inqueue", **more}, annotations=notes)


@pytest.mark.parametrize(
    ("new", "during_a_cycle", "want"),
    [
        pytest.param(written(), False, [], id="what we wrote"),
        pytest.param(written(), True, ["wake"], id="it comes during a cycle"),
        pytest.param(written(phase="Running"), False, ["wake"], id="another phase"),
        pytest.param(written(minimum=3), False, ["wake"], id="another minimum"),
        pytest.param(written(annotations={"a": "b"}), False, ["wake"], id="an annotation"),
        pytest.param(written(domain="r2"), False, ["wake"], id="another place"),
    ],
)
async def test_a_podgroup_with_our_own_status_starts_no_cycle(
    new: GroupBuilder, during_a_cycle: bool, want: list[str]
) -> None:
    heard: list[str] = []
    cache, old = _cache(heard), gang("g", phase="Pending").group
    emit = cache._handler("PodGroup")
    emit("ADDED", None, old)
    cache.change(GroupWritten("default/g", "Inqueue", (0, 0, 0), "r1"))
    heard.clear()
    if during_a_cycle:
        cache.freeze()
    emit("MODIFIED", old, new.group)
    assert heard == want
    for held in cache.thaw():
        cache.change(held)
    job = cache.cluster.jobs["default/g"]
    assert job.phase == new.group.status.phase
    assert job.domain == new.group.annotations[JOB_ALLOCATED_HYPERNODE]


@pytest.mark.parametrize("during_a_cycle", [True, False])
async def test_an_object_that_raises_is_logged_and_others_are_applied(
    during_a_cycle: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = KINDS["Node"]

    def put(cluster: Cluster, obj: core.Node) -> None:
        if obj.name == "bad":
            raise OverflowError("nobody thought of this")
        real.put(cluster, obj)

    monkeypatch.setitem(KINDS, "Node", Kind(real.type, put, real.drop))
    heard: list[str] = []
    cache = _cache(heard)
    if during_a_cycle:
        cache.freeze()
    for name in ("n1", "bad", "n2"):
        cache._handler("Node")("ADDED", None, node(name))
    for held in cache.thaw():
        cache.change(held)
    assert set(cache.cluster.nodes) == {"n1", "n2"}
    assert heard == ["wake"] * 3
    assert "Node /bad cannot be applied" in caplog.text


def _cache(heard: list[str]) -> Cache:
    return Cache(
        None,  # type: ignore[arg-type]
        Cluster(),
        lambda: heard.append("wake"),
        lambda: heard.append("notice"),
        clock=ManualClock(),
    )

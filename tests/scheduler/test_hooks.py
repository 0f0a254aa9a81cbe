"""Hook specifications: each is documented, called as specified, and refused otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tools.hook_reference import PAGE, page

from hekla.scheduler import Plugin
from hekla.scheduler.core import decide
from hekla.scheduler.errors import PluginError
from hekla.scheduler.framework.hooks import HOOKS, AnyHook
from hekla.scheduler.plugins import builtin
from hekla.testing import cluster, gang, hypernode, node, queue
from hekla.testing.objects import START

ANSWERS: dict[str, Callable[..., Any]] = {
    "job_ready": lambda job: True,
    "job_starving": lambda job: job.is_starving,
    "preemptive": lambda queue, task: True,
    "allocatable": lambda queue, task: 1000,
    "queue_metrics": dict,
    "depends_on_pods": lambda task: task.job.name in ("high", "other"),
    "leftover": lambda queue, task: 2**31,
    "predicate": lambda task, nodes: [(np.zeros(len(nodes), dtype=bool), "never")],
    "node_order": lambda task, nodes: np.zeros(len(nodes)),
    "job_notes": lambda job: ("a note",),
    "protection_notes": lambda job: ("a protection",),
    "job_order": lambda job: 0,
    "queue_order": lambda queue: 0,
    "task_order": lambda task: 0,
    "victim_queue_order": lambda queue, preemptor: 0,
    "queue_limit": lambda queue: queue.capability_r + np.inf,
}
"""Answers that change no decision. Other hooks may answer None or False."""


def _no_answer(*_: Any) -> None:
    return None


def spy_class() -> type[Plugin]:
    """Return a plugin that implements every hook with exactly the specified parameters."""
    calls: dict[str, int] = {}

    def method(hook: AnyHook) -> Callable[..., Any]:
        names = ", ".join(each.name for each in hook.parameters)
        answer: Callable[..., Any] = ANSWERS.get(hook.name, _no_answer)

        def record(*arguments: Any) -> Any:
            calls[hook.name] = calls.get(hook.name, 0) + 1
            return answer(*arguments)

        source = f"lambda self, {names}: record({names})" if names else "lambda self: record()"
        made: Callable[..., Any] = eval(source, {"record": record})
        return made

    body = {name: method(hook) for name, hook in HOOKS.items()}
    return type("Spy", (Plugin,), {**body, "calls": calls, "by_class": True}, name="spy")


CONF = """\
actions: "enqueue, allocate, preempt, reclaim, gangpreempt, gangreclaim, backfill, shuffle"
tiers:
- plugins: [{name: spy}, {name: priority}, {name: gang}]
- plugins:
  - {name: overcommit}
  - {name: predicates}
  - {name: capacity}
  - {name: nodeorder}
  - {name: network-topology-aware}
"""


PRIORITIES = {"low": 1, "high": 100}


def preempting() -> dict[str, Any]:
    """Return a full cluster: one queue preempts, another reclaims, one is at its capability."""
    old: dict[str, Any] = {"cpu": 1, "phase": "Running"}
    return {
        "nodes": [node("n1", cpu=4), node("n2", cpu=1)],
        "jobs": [
            gang("old", members=4, priority_class="low", running_on=["n1"] * 4, **old),
            gang("held", queue="q3", running_on=["n2"], **old),
            gang("high", members=2, cpu=1, priority_class="high"),
            gang("admit", cpu=1, phase="Pending", min_resources={"cpu": 2}),
            gang("small", cpu=1, phase="Pending", min_resources={"cpu": 1}),
            gang("wide", members=3, cpu=2, queue="q2", min_resources={"cpu": 6}),
            gang("close", members=2, cpu=1, network={"mode": "hard", "highestTierAllowed": 1}),
            gang("other", cpu=1, queue="q2", priority_class="high"),
            gang("over", cpu=1, queue="q3"),
        ],
        "queues": [
            queue("default", deserved={"cpu": 1}),
            queue("q2", deserved={"cpu": 4}),
            queue("q3", deserved={"cpu": 1}, capability={"cpu": 1}),
        ],
        "hypernodes": [hypernode("s1", tier=1, nodes=["n1", "n2"])],
    }


def placing() -> dict[str, Any]:
    """Return a free cluster with a gang that needs one network domain, and a protected victim."""
    return {
        "nodes": [node(f"n{i}", cpu=2) for i in range(1, 5)],
        "jobs": [
            gang("close", members=2, cpu=1, network={"mode": "hard", "highestTierAllowed": 1}),
            gang("huge", cpu=9, priority_class="high"),
        ],
        "hypernodes": [hypernode("s1", tier=1, nodes=["n1", "n2"])],
    }


def test_every_hook_is_called_as_specified() -> None:
    spy = spy_class()
    registry = builtin()
    registry.add(spy)
    for objects in (preempting(), placing()):
        made = cluster(**objects, priorities=PRIORITIES, conf=CONF, registry=registry)
        plan = decide(made.state, made.config, START, stopwatch=lambda: 0.0)
        assert plan.failures == []
    calls: dict[str, int] = spy.calls  # type: ignore[attr-defined]
    assert sorted(HOOKS.keys() - calls.keys()) == []


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_with_other_parameters_is_refused_at_definition(name: str) -> None:
    count = len(HOOKS[name].parameters)
    wrong = eval(f"lambda self, {', '.join(f'p{i}' for i in range(count + 1))}: None")
    with pytest.raises(PluginError, match=rf"Wrong.{name} cannot be called as {name}\("):
        type("Wrong", (Plugin,), {name: wrong}, name="wrong")


def test_a_method_may_name_its_parameters_as_it_likes() -> None:
    class Renamed(Plugin, name="renamed"):
        def predicate(self, pod: Any, machines: Any, extra: int = 0) -> list[Any]:
            return []

    assert Renamed.hooks == {"predicate"}


@pytest.mark.parametrize("name", HOOKS)
def test_every_hook_has_a_description_and_typed_parameters(name: str) -> None:
    hook = HOOKS[name]
    assert hook.doc.endswith(".")
    assert all(each.annotation is not each.empty for each in hook.parameters)


def test_the_reference_page_is_generated_from_the_specifications() -> None:
    assert PAGE.read_text() == page(), "run python -m tools.hook_reference"


class WrongLength(Plugin, name="wrong-length"):
    """Returns a plain array over all nodes for every view."""

    def open(self, session: Any) -> None:
        self.all = np.zeros(len(session.nodes))

    def node_order(self, task: Any, nodes: Any) -> Any:
        return self.all


def test_a_score_over_the_wrong_nodes_is_a_failure_of_the_plugin_and_not_of_the_cycle() -> None:
    jobs: Sequence[Any] = [gang("a", members=2, cpu=1)]
    bare = 'actions: "allocate"\ntiers:\n- plugins: [{name: gang}, {name: nodeorder}]\n'
    made = cluster([node(f"n{i}") for i in range(4)], jobs, plugins=[WrongLength()], conf=bare)
    result = made.run()
    assert len(result.binds) == 2
    (failure,) = result.plan.failures
    assert (failure.plugin, failure.hook) == ("wrong-length", "node_order")
    assert "make arrays over all nodes with nodes.array" in failure.error


def test_an_array_over_all_nodes_keeps_its_axis_in_arithmetic() -> None:
    class Axis(Plugin, name="axis"):
        def open(self, session: Any) -> None:
            self.weights = session.nodes.array([1.0, 5.0, 3.0])

        def node_order(self, task: Any, nodes: Any) -> Any:
            return 10.0 - 2.0 * self.weights

    bare = 'actions: "allocate"\ntiers:\n- plugins: [{name: gang}]\n'
    jobs = [gang("a", members=3, cpu=1)]
    nodes = [node(f"n{i}", cpu=1) for i in range(1, 4)]
    result = cluster(nodes, jobs, plugins=[Axis()], conf=bare).run()
    assert result.plan.failures == []
    assert result.binds == {"a-0": "n1", "a-1": "n3", "a-2": "n2"}

"""The plugin API: refused classes, converted arguments, combined answers, isolated failures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hekla.scheduler import PERMIT, REJECT, PerNodePlugin, Plugin
from hekla.scheduler.errors import PluginError
from hekla.scheduler.framework import hooks
from hekla.scheduler.framework.tiers import Tiers
from hekla.scheduler.state.model import Job, Node, Queue, Task
from hekla.testing import cluster, gang, node

HOT = "example.com/celsius"
NODES = [
    node("n1", annotations={HOT: "95"}),
    node("n2", annotations={HOT: "30"}),
    node("n3", annotations={HOT: "20"}),
]
BARE = 'actions: "allocate"\ntiers:\n- plugins: [{name: gang}]\n'


class CoolNodes(Plugin, name="cool-nodes"):
    """Keep work off hot machines, and prefer the coolest."""

    weight: float = 1.0
    limit: float = 90.0

    def open(self, session: Any) -> None:
        self.heat = session.nodes.annotation(HOT, float, default=50.0)

    def predicate(self, task: Task, nodes: Any) -> Iterator[tuple[Any, str]]:
        yield self.heat > self.limit, "node(s) were too hot"

    def node_order(self, task: Task, nodes: Any) -> Any:
        return self.weight * (100.0 - self.heat)


def test_a_plugin_of_ten_lines_picks_the_coolest_node() -> None:
    world = cluster(NODES, [gang("a", members=5, cpu=1)], plugins=[CoolNodes()], conf=BARE)
    result = world.run()
    assert list(result.binds.values()) == ["n3", "n3", "n3", "n3", "n2"]
    assert result.plan.failures == []


def test_a_plugins_reason_is_in_the_verdict() -> None:
    plugin = CoolNodes(limit=10)
    result = cluster(NODES, [gang("a", cpu=1)], plugins=[plugin], conf=BARE).run()
    verdict = result.verdict("a")
    assert verdict is not None
    assert verdict.nodes == {"node(s) were too hot": 3}


def test_a_misspelt_hook_is_refused_with_the_real_ones() -> None:
    with pytest.raises(PluginError, match=r"predicat is no hook; did you mean 'predicate'\?") as e:

        class Wrong(Plugin, name="wrong"):
            def predicat(self, task: Task, nodes: Any) -> None: ...

    assert "node_order" in str(e.value)


def test_arguments_are_converted_and_checked() -> None:
    plugin = CoolNodes()
    plugin.configure({"cool-nodes.weight": "2.5", "limit": 70}, {})
    assert (plugin.weight, plugin.limit) == (2.5, 70.0)
    with pytest.raises(PluginError, match=r"cool-nodes.weight must be a number, and 'warm' is not"):
        plugin.configure({"cool-nodes.weight": "warm"}, {})
    with pytest.raises(PluginError, match="has no argument 'wieght'; it has: weight, limit"):
        CoolNodes(wieght=1)


def test_a_per_node_plugin_filters_and_scores_single_nodes() -> None:
    class OnlyEven(PerNodePlugin, name="only-even"):
        def fits(self, task: Task, node: Node) -> str | None:
            return None if int(node.name[1:]) % 2 == 0 else "node(s) are odd"

        def score(self, task: Task, node: Node) -> float:
            return float(node.name[1:])

    nodes = [node(f"n{i}") for i in range(1, 5)]
    result = cluster(nodes, [gang("a", cpu=1)], plugins=[OnlyEven()], conf=BARE).run()
    assert result.binds == {"a-0": "n4"}


def test_a_plugin_that_raises_is_left_out_and_the_cycle_continues() -> None:
    class Broken(Plugin, name="broken"):
        asked = 0

        def node_order(self, task: Task, nodes: Any) -> Any:
            Broken.asked += 1
            raise ZeroDivisionError("oops")

        def predicate(self, task: Task, nodes: Any) -> Iterator[tuple[Any, str]]:
            yield np.zeros(len(nodes), dtype=bool), "never"

    jobs = [gang("a", cpu=1), gang("b", cpu=1)]
    result = cluster(NODES, jobs, plugins=[Broken()], conf=BARE).run()
    assert set(result.binds) == {"a-0", "b-0"}
    (failure,) = result.plan.failures
    assert (failure.plugin, failure.hook) == ("broken", "node_order")
    assert failure.error == "ZeroDivisionError: oops"
    assert Broken.asked == 1


def test_a_predicate_generator_that_raises_half_way_is_isolated() -> None:
    class Half(Plugin, name="half"):
        def predicate(self, task: Task, nodes: Any) -> Iterator[tuple[Any, str]]:
            yield np.ones(len(nodes), dtype=bool), "all of them"
            raise RuntimeError

    result = cluster(NODES, [gang("a", cpu=1)], plugins=[Half()], conf=BARE).run()
    assert set(result.binds) == {"a-0"}
    assert len(result.plan.failures) == 1


def test_tasks_stay_pending_when_an_essential_plugin_fails() -> None:
    class Vital(Plugin, name="vital"):
        essential = True

        def predicate(self, task: Task, nodes: Any) -> Any:
            raise RuntimeError

    result = cluster(NODES, [gang("a", cpu=1)], plugins=[Vital()], conf=BARE).run()
    assert result.binds == {}
    assert "3 plugin vital failed" in result.why("a")


def test_a_plugin_that_overruns_is_left_out() -> None:
    now = iter(range(1000))

    class Slow(Plugin, name="slow"):
        def job_ready(self, job: Job) -> bool:
            return False

    tiers = Tiers([[Slow()]], stopwatch=lambda: 2.0 * next(now))
    job: Any = object()
    assert not tiers.all_true(hooks.job_ready, job)
    assert tiers.all_true(hooks.job_ready, job)
    assert "took more than 1 s" in tiers.failures[0].error


def voter(answer: Any) -> Plugin:
    class Voter(Plugin, name="voter"):
        def job_enqueueable(self, job: Job) -> Any:
            return answer

    return Voter()


VOTES: dict[str, tuple[list[list[Any]], bool]] = {
    "no plugin votes": ([[]], True),
    "all plugins abstain": ([[None], [None]], True),
    "a permission ends it in its tier": ([[PERMIT], [REJECT]], True),
    "a rejection wins in the same tier, also after a permission": ([[PERMIT, REJECT]], False),
    "a tier of abstentions passes on": ([[None, None], [REJECT]], False),
}


@pytest.mark.parametrize("case", VOTES)
def test_votes_go_tier_by_tier(case: str) -> None:
    answers, want = VOTES[case]
    tiers = Tiers([[voter(answer) for answer in tier] for tier in answers])
    job: Any = object()
    assert tiers.vote(hooks.job_enqueueable, job) is want


def chooser(mask: list[int] | None) -> Plugin:
    class Chooser(Plugin, name="chooser"):
        def preemptable(self, task: Task, candidates: Any) -> Any:
            if mask is None:
                return None
            return np.asarray([mask[number] for number in candidates], dtype=bool)

    return Chooser()


VICTIMS: dict[str, tuple[list[list[Any]], list[int], list[int]]] = {
    "plugins of a tier must agree": ([[[1, 1, 0], [0, 1, 1]]], [0, 1, 0], [0, 1, 0]),
    "the first tier with a vote is final": (
        [[None], [[1, 0, 0]], [[1, 1, 1]]],
        [1, 0, 0],
        [1, 0, 0],
    ),
    "a veto stays a veto, unlike Volcano's": ([[[0, 0, 0]], [[1, 1, 1]]], [0, 0, 0], [1, 1, 1]),
    "no votes, no victims": ([[None]], [0, 0, 0], [0, 0, 0]),
}


@pytest.mark.parametrize("case", VICTIMS)
def test_victims_of_a_tier(case: str) -> None:
    masks, want, want_lenient = VICTIMS[case]
    plugins = [[chooser(mask) for mask in tier] for tier in masks]
    preemptor: Any = None
    candidates: Any = [0, 1, 2]
    assert Tiers(plugins).victims(hooks.preemptable, preemptor, candidates) == want
    lenient = Tiers(plugins, lenient_victims=True)
    assert lenient.victims(hooks.preemptable, preemptor, candidates) == want_lenient


def test_order_keys_are_joined_across_tiers() -> None:
    class First(Plugin, name="first"):
        def job_order(self, job: Any) -> int:
            return int(job[0])

    class Second(Plugin, name="second"):
        def job_order(self, job: Any) -> int:
            return -int(job[1])

    tiers = Tiers([[First()], [Second()]])
    jobs: list[Any] = [(1, 1), (0, 1), (0, 2)]
    assert sorted(jobs, key=lambda j: tiers.order_key(hooks.job_order, j)) == [
        (0, 2),
        (0, 1),
        (1, 1),
    ]


def test_an_enable_switch_turns_a_hook_off() -> None:
    plugin = voter(REJECT)
    plugin.configure({}, {"enableJobEnqueued": False})
    job: Any = object()
    assert Tiers([[plugin]]).vote(hooks.job_enqueueable, job)


def test_allocatable_with_a_bool_is_called_for_each_task() -> None:
    class Two(Plugin, name="two"):
        def allocatable(self, queue: Queue, task: Task) -> bool:
            return bool(queue.allocated_r[0] < 2000)

    job = gang("a", members=4, minimum=1, cpu=1)
    result = cluster([node("n1", cpu=8)], [job], plugins=[Two()], conf=BARE).run()
    assert set(result.binds) == {"a-0", "a-1"}

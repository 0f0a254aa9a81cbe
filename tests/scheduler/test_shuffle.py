"""shuffle: tasks that a plugin selects are evicted."""

from __future__ import annotations

from collections.abc import Sequence

from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.state.model import Task
from hekla.testing import Result, cluster, gang, node

CONF = """\
actions: "allocate, shuffle"
tiers:
- plugins: [{name: gang}, {name: predicates}, {name: pdb}]
"""


class Leave(Plugin, name="leave"):
    names: str = ""

    def victim_tasks(self, tasks: Sequence[Task]) -> list[bool]:
        return [task.name in self.names.split(",") for task in tasks]


def run(*plugins: Plugin) -> Result:
    jobs = [gang("a", members=3, cpu=1, running_on=["n1"] * 3, phase="Running")]
    jobs.append(gang("waits", members=1, cpu=9))
    return cluster([node("n1", cpu=8)], jobs, plugins=plugins, conf=CONF).run()


def test_victim_tasks_of_one_tier_are_united() -> None:
    result = run(Leave(names="a-0"), Leave(names="a-2,waits-0"))
    assert result.evictions == ["a-0", "a-2"]
    assert {eviction.reason for eviction in result.plan.evictions} == {"shuffle"}


def test_shuffle_evicts_no_pod_without_a_plugin() -> None:
    assert run().evictions == []
    assert run(Leave(names="")).evictions == []

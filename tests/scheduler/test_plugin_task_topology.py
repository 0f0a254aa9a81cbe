"""task-topology: role affinity, role anti-affinity, and the busiest pair of nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.api.wellknown import (
    TASK_TOPOLOGY_AFFINITY,
    TASK_TOPOLOGY_ANTI_AFFINITY,
    TASK_TOPOLOGY_ORDER,
)
from hekla.scheduler.errors import ConfigError
from hekla.scheduler.framework.config import parse
from hekla.scheduler.plugins import builtin
from hekla.scheduler.plugins.task_topology.buckets import Layout, RoleAffinity
from hekla.scheduler.plugins.task_topology.scores import traffic
from hekla.testing import GroupBuilder, Result, cluster, gang, node, pod

CONF = """\
actions: "allocate"
tiers:
- plugins:
  - {name: gang}
  - {name: predicates}
  - {name: nodeorder}
  - {name: task-topology, arguments: {task-topology.weight: 10, task-topology.mode: %s}}
"""


def job(
    roles: Mapping[str, int], *, together: str = "", apart: str = "", order: str = "",
    cpu: int = 1, name: str = "tf",
) -> GroupBuilder:  # fmt: skip
    notes = {
        TASK_TOPOLOGY_AFFINITY: together,
        TASK_TOPOLOGY_ANTI_AFFINITY: apart,
        TASK_TOPOLOGY_ORDER: order,
    }
    made = gang(name, members=0, minimum=sum(roles.values()), annotations=notes)
    return made.and_pods(
        *(
            pod(f"{name}-{role}-{i}", group=name, role=role, cpu=cpu)
            for role, count in roles.items()
            for i in range(count)
        )
    )


def place(
    *jobs: GroupBuilder, nodes: int = 3, cpu: int = 6, mode: str = "buckets"
) -> Result:  # fmt: skip
    machines = [node(f"n{i}", cpu=cpu) for i in range(nodes)]
    return cluster(machines, jobs, conf=CONF % mode).run()


def on_nodes(result: Result) -> list[dict[str, int]]:
    """The roles on each node that is used."""
    found: dict[str, Counter[str]] = {}
    for name, where in result.binds.items():
        found.setdefault(where, Counter())[name.split("-")[1]] += 1
    return sorted((dict(counts) for counts in found.values()), key=str)


def buckets(made: GroupBuilder) -> list[dict[str, int]]:
    world = cluster([], [made], conf=CONF % "buckets").state
    found = world.jobs["default/tf"]
    return [bucket.roles for bucket in Layout(found, RoleAffinity(found)).buckets]


def test_roles_with_self_anti_affinity_open_buckets_that_attracted_roles_fill() -> None:
    """The founding case: 2 ps apart, 4 workers with them: two buckets of 1 + 2."""
    made = job({"ps": 2, "worker": 4}, together="ps,worker", apart="ps")
    assert buckets(made) == [{"ps": 1, "worker": 2}, {"ps": 1, "worker": 2}]


def test_without_repulsion_all_are_one_bucket() -> None:
    assert buckets(job({"ps": 2, "worker": 4}, together="ps,worker")) == [{"ps": 2, "worker": 4}]


def test_roles_that_are_not_named_are_in_no_bucket() -> None:
    assert buckets(job({"ps": 1, "worker": 1, "log": 3}, together="ps,worker")) == [
        {"ps": 1, "worker": 1}
    ]


def test_buckets_become_nodes() -> None:
    made = job({"ps": 2, "worker": 4}, together="ps,worker", apart="ps")
    assert on_nodes(place(made)) == [{"ps": 1, "worker": 2}] * 2


def test_without_task_topology_spreading_separates_the_tasks() -> None:
    assert len(on_nodes(place(job({"ps": 2, "worker": 4})))) == 3


def test_roles_with_anti_affinity_are_placed_on_different_nodes() -> None:
    assert on_nodes(place(job({"ps": 3}, apart="ps"))) == [{"ps": 1}] * 3


def test_role_affinity_never_keeps_a_job_pending() -> None:
    made = job({"ps": 4}, apart="ps")
    assert len(place(made, nodes=2).binds) == 4
    wide = job({"ps": 2, "worker": 4}, together="ps,worker")
    assert len(place(wide, cpu=2).binds) == 6


@pytest.mark.parametrize("mode", ["buckets", "communication"])
def test_a_job_is_pending_in_a_cluster_without_nodes(mode: str) -> None:
    result = place(job({"ps": 2, "worker": 4}, together="ps,worker"), nodes=0, mode=mode)
    assert result.binds == {}
    assert not result.plan.failures


def test_a_replaced_member_joins_its_bucket() -> None:
    made = job({"ps": 1, "worker": 2}, together="ps,worker")
    world = cluster([node(f"n{i}", cpu=6) for i in range(3)], [made], conf=CONF % "buckets")
    world.live(world.run())
    home = {task.node_name for task in world.state.tasks.values()}
    world.state.delete_pod("default-tf-worker-1")
    world.add(GroupBuilder(made.group, [pod("tf-worker-1", group="tf", role="worker", cpu=1)]))
    assert set(world.run().binds.values()) == home


def test_the_users_order_comes_first() -> None:
    made = job({"a": 1, "b": 1}, together="a,b", order="b,a")
    world = cluster([node("n0", cpu=1)], [made], conf=CONF % "buckets")
    world.state.jobs["default/tf"].min_member = 1
    assert list(world.run().binds) == ["tf-b-0"]


def test_a_role_order_alone_orders_tasks_without_affinity() -> None:
    made = job({"a": 2, "b": 1}, order="b,a")
    assert next(iter(place(made).binds)) == "tf-b-0"
    assert buckets(made) == []


def test_invalid_role_affinity_is_ignored_and_noted() -> None:
    made = job({"ps": 2, "worker": 8}, together="ps,wroker", cpu=6)
    result = place(made)
    assert result.binds == {}
    assert "names 'wroker', which is no role of the job" in result.why("tf")


def test_a_job_without_role_affinity_is_placed_as_without_the_plugin() -> None:
    made = [job({"ps": 2, "worker": 4}), job({"x": 3}, name="other")]
    machines = [node(f"n{i}", cpu=6) for i in range(3)]
    without = CONF.replace("  - {name: task-topology", "  #").replace("%s", "buckets")
    assert place(*made).binds == cluster(machines, made, conf=without).run().binds


def test_communication_keeps_the_busiest_pair_of_nodes_small() -> None:
    """Room for three on a node: 1 ps + 2 workers twice parts 4 pairs; 2 ps + 1 worker, 6."""
    made = job({"ps": 2, "worker": 4}, together="ps,worker")
    result = place(made, cpu=3, mode="communication")
    here = [[roles.get("ps", 0), roles.get("worker", 0)] for roles in on_nodes(result)]
    assert traffic(np.array(here, float), np.array([[0.0, 1.0], [1.0, 0.0]])).max() <= 4


def test_communication_uses_one_node_where_one_is_enough() -> None:
    made = job({"ps": 2, "worker": 4}, together="ps,worker")
    assert len(on_nodes(place(made, mode="communication"))) == 1


@given(
    st.dictionaries(st.sampled_from("abc"), st.integers(1, 4), min_size=1),
    st.lists(st.sampled_from(["a,b", "b,c", "a", "b"]), max_size=2),
    st.lists(st.sampled_from(["a", "c", "a,c"]), max_size=2),
    st.sampled_from(["buckets", "communication"]),
)
def test_every_job_that_fits_is_placed_whatever_its_role_affinity(
    roles: dict[str, int], together: list[str], apart: list[str], mode: str
) -> None:
    made = job(roles, together=";".join(together), apart=";".join(apart))
    assert len(place(made, cpu=4, mode=mode).binds) == sum(roles.values())


def test_an_unknown_mode_is_refused_with_the_configuration() -> None:
    with pytest.raises(ConfigError, match=r"task-topology\.mode is 'bucket'"):
        parse(CONF % "bucket", builtin())

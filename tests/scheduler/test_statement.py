"""Statements: commit, keep and rollback."""

from __future__ import annotations

import numpy as np
import pytest

from hekla.scheduler.explain.plan_writer import write_plan
from hekla.scheduler.framework.plan import Evict
from hekla.scheduler.session.session import Session
from hekla.scheduler.state.status import ALLOCATED, PENDING, PIPELINED, RELEASING, RUNNING
from hekla.testing import TestCluster, cluster, gang, node


def stage() -> TestCluster:
    jobs = [
        gang("old", members=2, cpu=2, running_on=["n1", "n1"], phase="Running"),
        gang("new", members=2, cpu=1),
    ]
    return cluster([node("n1", cpu=4)], jobs)


N1 = np.asarray([0], dtype=np.int64)


def test_an_eviction_adds_future_idle_and_is_undone_exactly() -> None:
    world = stage()
    victim = world.state.tasks["default-old-0"]
    pending = world.state.tasks["default-new-0"]
    with Session(world.state, world.config, 0.0) as session:
        assert len(session.placer.best_nodes(pending, 1, future=True)) == 0
        with session.statement() as statement:
            statement.evict(victim, "preempt")
            assert victim.status == RELEASING
            assert session.columns.future_idle(0)[0] == 2000.0
            assert len(session.placer.best_nodes(pending, 1)) == 0, "it is not free yet"
            statement.pipeline([pending], session.placer.best_nodes(pending, 1, future=True))
            assert pending.status == PIPELINED
            assert session.columns.future_idle(0)[0] == 1000.0
        assert (victim.status, victim.node_name) == (RUNNING, "n1")
        assert (pending.status, pending.node_name) == (PENDING, "")
        assert session.columns.future_idle(0)[0] == 0.0
    assert session.plan.evictions == []


def test_a_committed_eviction_is_in_the_plan_and_the_cluster_stays_as_it_was() -> None:
    world = stage()
    victim = world.state.tasks["default-old-1"]
    with Session(world.state, world.config, 0.0) as session, session.statement() as statement:
        statement.evict(victim, "preempt")
        statement.commit()
        write_plan(session)
    assert session.plan.evictions == [
        Evict("default", "old-1", "default-old-1", "n1", "preempt", "default/old")
    ]
    assert victim.status == RUNNING


def test_kept_operations_hold_resources_and_are_not_in_the_plan() -> None:
    world = cluster([node("n1", cpu=1)], [gang("a", cpu=1), gang("b", cpu=1)])
    first, second = world.state.tasks["default-a-0"], world.state.tasks["default-b-0"]
    with Session(world.state, world.config, 0.0) as session:
        with session.statement() as statement:
            statement.allocate([first], N1)
            statement.keep()
        assert first.status == ALLOCATED
        assert len(session.placer.best_nodes(second, 1)) == 0
    assert session.plan.binds == []
    assert world.state.tasks["default-a-0"].status == PENDING


def test_an_exception_rolls_back() -> None:
    world = cluster([node("n1", cpu=1)], [gang("a", cpu=1)])
    task = world.state.tasks["default-a-0"]

    def fail(session: Session) -> None:
        with session.statement() as statement:
            statement.allocate([task], N1)
            raise ZeroDivisionError

    with Session(world.state, world.config, 0.0) as session:
        with pytest.raises(ZeroDivisionError):
            fail(session)
        assert task.status == PENDING
        assert session.columns.idle_rn[0, 0] == 1000.0

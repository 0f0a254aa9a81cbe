"""The scheduler's decision: cluster state in, plan out. No clock, no randomness, no I/O.

Production, tests, simulation and benchmarks call this function. Equal state and time give an equal
plan, and the cluster is left as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hekla.scheduler.actions import ACTIONS
from hekla.scheduler.explain.plan_writer import write_plan, write_queue_metrics
from hekla.scheduler.framework.config import Config
from hekla.scheduler.framework.plan import Plan
from hekla.scheduler.session.session import Session
from hekla.scheduler.state.cluster import Cluster


def decide(
    cluster: Cluster,
    config: Config,
    now: float,
    *,
    stopwatch: Callable[[], float] | None = None,
    skipped: Mapping[str, str] | None = None,
) -> Plan:
    """Run one cycle and return its plan.

    `stopwatch` times plugins, and one that overruns is left out. Without it, the plan depends on
    the state alone. `skipped` are jobs that are not placed in this cycle, with the reason.
    """
    read_s = stopwatch or _no_time
    began_s = read_s()
    with Session(cluster, config, now, stopwatch=stopwatch, skipped=skipped) as session:
        timings_s = session.plan.timings_s
        timings_s["session", "open"] = read_s() - began_s
        for name in config.actions:
            began_s = read_s()
            ACTIONS[name](session)
            timings_s["action", name] = read_s() - began_s
        if stopwatch is not None:
            write_queue_metrics(session)
        session.close()
        write_plan(session)
    return session.plan


def _no_time() -> float:
    return 0.0

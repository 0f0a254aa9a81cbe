"""The scheduler's decision: the cluster in, a plan out. No clock, no chance, no I/O.

Production, tests, simulation and benchmarks call this very function. The same state and time give
the same plan, and the cluster is left as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hekla.scheduler.actions import ACTIONS
from hekla.scheduler.cluster import Cluster
from hekla.scheduler.config import Config
from hekla.scheduler.plan import Plan
from hekla.scheduler.session import Session


def decide(
    cluster: Cluster,
    config: Config,
    now: float,
    *,
    stopwatch: Callable[[], float] | None = None,
    skipped: Mapping[str, str] | None = None,
) -> Plan:
    """What to do now.

    `stopwatch` lets plugins be timed, so that one that overruns loses its vote; without it they
    may take as long as they like and the result depends on the state alone. `skipped` are jobs
    that are not to be placed in this cycle, with the reason.
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
            session.note_figures()
    return session.plan


def _no_time() -> float:
    return 0.0

"""The scheduler: where pods go, and why they wait.

    state       the cluster as arrays and indexes
    framework   hooks, plugins, tiers, configuration, plan
    placement   feasible nodes, scores, placing many equal tasks at once
    session     one cycle: session and statement
    explain     verdicts, and the status of PodGroups and pods
    actions     enqueue, allocate, preempt, reclaim, backfill, …
    plugins     gang, capacity, drf, predicates, …
    core        decide(cluster, config, now) -> Plan
    service     the running scheduler: watches in, writes out

The names below are what a plugin needs. Import other names from the module that defines them.
"""

from hekla.scheduler.framework.answers import (
    PERMIT,
    REJECT,
    Invalid,
    Normalized,
    SequentialScore,
)
from hekla.scheduler.framework.plugin import PerNodePlugin, Plugin

__all__ = [
    "PERMIT",
    "REJECT",
    "Invalid",
    "Normalized",
    "PerNodePlugin",
    "Plugin",
    "SequentialScore",
]

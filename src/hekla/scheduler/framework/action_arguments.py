"""Arguments of actions in the section `configurations`, with type and default.

All of Volcano's arguments are accepted. Those that tune Volcano's search (node sampling, threads,
the predicate cache) are checked and have no effect: hekla considers every node, and computes
filters once per task class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hekla.scheduler.framework.arguments import Argument
from hekla.units.durations import DurationError, parse_duration

_WITHOUT_EFFECT: Final[Mapping[str, Mapping[str, Any]]] = {
    "allocate": {"predicateErrorCacheEnable": True},
    "backfill": {"predicateErrorCacheEnable": True},
    "preempt": {
        "predicateErrorCacheEnable": True,
        "enableTopologyAwarePreemption": False,
        "topologyAwarePreemptWorkerNum": 16,
        "minCandidateNodesPercentage": 10,
        "minCandidateNodesAbsolute": 1,
        "maxCandidateNodesAbsolute": 100,
    },
    "reclaim": {"predicateErrorCacheEnable": True},
    "gangpreempt": {},
    "gangreclaim": {},
    "enqueue": {},
    "shuffle": {},
}
RESERVE_AFTER: Final = "reserveAfter"
ALLOW_WHOLE_BUNDLE: Final = "allowWholeBundle"
MAX_DOMAINS: Final = "maxDomains"
_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "allocate": {RESERVE_AFTER: "15m"},
    "gangpreempt": {ALLOW_WHOLE_BUNDLE: True, MAX_DOMAINS: 8},
    "gangreclaim": {ALLOW_WHOLE_BUNDLE: True, MAX_DOMAINS: 8},
}


def known(action: str) -> dict[str, Any]:
    """Return all arguments of an action with their defaults."""
    return {**_WITHOUT_EFFECT.get(action, {}), **_DEFAULTS.get(action, {})}


def convert(action: str, key: str, value: Any) -> Any:
    """Convert a value to the type of its argument; PluginError or DurationError names the key."""
    default = known(action)[key]
    converted = Argument((key,), type(default), default).convert(value)
    if key == RESERVE_AFTER and converted not in ("", "0"):
        seconds = parse_duration(converted)
        if seconds < 0:
            raise DurationError(f"{key} is negative")
    return converted

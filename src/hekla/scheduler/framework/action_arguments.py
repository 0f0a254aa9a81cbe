"""The arguments that actions take under `configurations`, each with its kind and default.

All of Volcano's are known. Those that steer how Volcano searches (how many nodes it samples, how
many threads it uses, whether it remembers a failed filter) are read and checked but change nothing:
here every node is looked at, and filters are decided once for equal pods in any case.
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
    """All arguments of an action with their defaults."""
    return {**_WITHOUT_EFFECT.get(action, {}), **_DEFAULTS.get(action, {})}


def convert(action: str, key: str, value: Any) -> Any:
    """The value as the action wants it; raises PluginError or DurationError naming the key."""
    default = known(action)[key]
    converted = Argument((key,), type(default), default).convert(value)
    if key == RESERVE_AFTER and converted not in ("", "0"):
        seconds = parse_duration(converted)
        if seconds < 0:
            raise DurationError(f"{key} is negative")
    return converted

"""Conversion between the storage version and the requested version, without webhooks.

Two cases: custom kinds whose versions differ only in apiVersion, and Events, which Kubernetes
serves in two groups with different field names.
"""

import re
from collections.abc import Callable
from typing import Any

# events.k8s.io/v1 name -> core/v1 name
_EVENT_NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
    "reportingController": "reportingComponent",
}
_EVENT_NAMES_BACK = {core: new for new, core in _EVENT_NAMES.items()}


_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?", re.ASCII)
_STAGES = {None: 0, "beta": 1, "alpha": 2}


def order(name: str) -> tuple[int, int, int, str]:
    """Return a sort key of version names: stable before beta before alpha, newest first."""
    found = _VERSION.fullmatch(name)
    if found is None:
        return 3, 0, 0, name
    return _STAGES[found[2]], -int(found[1]), -int(found[3] or 0), ""


def renamer(api_version: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a converter that only changes apiVersion."""

    def convert(obj: dict[str, Any]) -> dict[str, Any]:
        return {**obj, "apiVersion": api_version}

    return convert


def event_to_core(obj: dict[str, Any]) -> dict[str, Any]:
    renamed = {_EVENT_NAMES.get(name, name): value for name, value in obj.items()}
    return {**renamed, "apiVersion": "v1"}


def event_from_core(obj: dict[str, Any]) -> dict[str, Any]:
    renamed = {_EVENT_NAMES_BACK.get(name, name): value for name, value in obj.items()}
    return {**renamed, "apiVersion": "events.k8s.io/v1"}

"""Conversion between the storage version and the requested version, without webhooks.

Two cases: custom kinds whose versions differ only in apiVersion, and Events, which Kubernetes
serves in two groups with different field names.
"""

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

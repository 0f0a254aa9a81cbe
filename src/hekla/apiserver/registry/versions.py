"""Between the version an object is stored in and the version a client asks for.

Only two cases exist here: custom kinds with several versions and no webhook, where just the
apiVersion differs, and Events, which Kubernetes shows through two groups in two shapes.
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
    """A converter that only changes apiVersion."""

    def convert(obj: dict[str, Any]) -> dict[str, Any]:
        return {**obj, "apiVersion": api_version}

    return convert


def event_to_core(obj: dict[str, Any]) -> dict[str, Any]:
    renamed = {_EVENT_NAMES.get(name, name): value for name, value in obj.items()}
    return {**renamed, "apiVersion": "v1"}


def event_from_core(obj: dict[str, Any]) -> dict[str, Any]:
    renamed = {_EVENT_NAMES_BACK.get(name, name): value for name, value in obj.items()}
    return {**renamed, "apiVersion": "events.k8s.io/v1"}

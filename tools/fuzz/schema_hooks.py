"""Exclude requests from schemathesis: endless responses, and future resource versions."""

from __future__ import annotations

from typing import Any

import schemathesis

_ENDLESS = ("watch", "follow", "sendInitialEvents", "resourceVersion", "timeoutSeconds")


@schemathesis.hook
def map_query(context: Any, query: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if query is None else {k: v for k, v in query.items() if k not in _ENDLESS}

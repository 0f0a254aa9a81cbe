"""Records for tests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hekla.api.history import JobRecord

NOW = 1_790_000_000.0


def record(name: str = "train", *, ended: float = NOW, **more: Any) -> JobRecord:
    at = datetime.fromtimestamp(ended, UTC)
    fields: dict[str, Any] = {
        "uid": f"uid-{name}",
        "namespace": "default",
        "name": name,
        "phase": "Completed",
        "queue": "default",
        "submitted": at,
        "finished": at,
    }
    return JobRecord(**{**fields, **more})

"""hekla: a batch system with Volcano's Kubernetes API, on any cluster and on one machine.

    from hekla import Job, Queue, Task, submit

Note: importing hekla imports nothing else; names of the SDK are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hekla.sdk import (
        AsyncJobHandle,
        Job,
        JobEnded,
        JobHandle,
        LogLine,
        Queue,
        Task,
        create_queue,
        submit,
        submit_async,
    )

__version__ = "0.2.0"

__all__ = [
    "AsyncJobHandle",
    "Job",
    "JobEnded",
    "JobHandle",
    "LogLine",
    "Queue",
    "Task",
    "__version__",
    "create_queue",
    "submit",
    "submit_async",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'hekla' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("hekla.sdk"), name)

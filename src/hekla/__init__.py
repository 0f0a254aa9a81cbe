"""hekla: a batch system with Volcano's Kubernetes API, on any cluster and on one machine.

    from hekla import Job, Queue, Task, submit

Note: importing hekla imports nothing else; names of the SDK are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hekla.sdk import (
        AlreadyExists,
        ApiError,
        ArrayStatus,
        AsyncFunctionJob,
        AsyncJobHandle,
        BadRequest,
        CallTooLarge,
        CannotRetry,
        ConfigError,
        Conflict,
        Executor,
        Explanation,
        Forbidden,
        FunctionFailed,
        FunctionJob,
        HostEnvironment,
        HostPathError,
        Invalid,
        Job,
        JobEnded,
        JobFuture,
        JobHandle,
        JobRecord,
        KubeError,
        LogLine,
        NotFound,
        Queue,
        Task,
        TransportError,
        Unauthorized,
        as_completed,
        as_completed_async,
        create_queue,
        create_queue_async,
        gather,
        gather_async,
        history,
        history_async,
        list_jobs,
        list_jobs_async,
        map_jobs,
        submit,
        submit_async,
    )

__version__ = "0.2.0"

__all__ = [
    "AlreadyExists",
    "ApiError",
    "ArrayStatus",
    "AsyncFunctionJob",
    "AsyncJobHandle",
    "BadRequest",
    "CallTooLarge",
    "CannotRetry",
    "ConfigError",
    "Conflict",
    "Executor",
    "Explanation",
    "Forbidden",
    "FunctionFailed",
    "FunctionJob",
    "HostEnvironment",
    "HostPathError",
    "Invalid",
    "Job",
    "JobEnded",
    "JobFuture",
    "JobHandle",
    "JobRecord",
    "KubeError",
    "LogLine",
    "NotFound",
    "Queue",
    "Task",
    "TransportError",
    "Unauthorized",
    "__version__",
    "as_completed",
    "as_completed_async",
    "create_queue",
    "create_queue_async",
    "gather",
    "gather_async",
    "history",
    "history_async",
    "list_jobs",
    "list_jobs_async",
    "map_jobs",
    "submit",
    "submit_async",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'hekla' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("hekla.sdk"), name)


def __dir__() -> list[str]:
    return sorted({name for name in globals() if name.startswith("__")} | {*__all__})

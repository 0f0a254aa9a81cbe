"""Python SDK: build and submit jobs, wait for them, read their output.

    from hekla import Job, Queue, Task, submit

    job = submit(Job("hello", [Task("worker", image="busybox", command="echo hi", replicas=2)]))
    for line in job.logs(follow=True):
        print(line)
    assert job.wait() == "Completed"

In a coroutine, `await submit_async(...)` returns a handle with awaitable methods.

    builders.py        Job, Task, Queue: Python objects that become manifests
    validation.py      validation of an object before it is sent
    submission.py      `submit` and `submit_async`
    functions/         functions as jobs, `Executor`
    handle.py          JobHandle
    async_handle.py    the same for asyncio
    async_clients.py   the client of an event loop
    manifests.py       manifests of builders, and the checks before they are sent
    unknown_fields.py  fields that the schema does not have
    pending_reasons.py why a job does not run
    job_phases.py      phases of a job and the conditions of `wait`
    job_commands.py    Commands and patches that change a job
    explanation.py     why a job is pending, running or failed
    several_jobs.py    `as_completed` and `gather`
    several_jobs_async.py the same in coroutines
    timeouts.py        what a TimeoutError says
    attempts.py        the output of earlier tries
    array_status.py    the indices of an array by state
    job_retry.py       the job that retries a failed one
    host_environment.py what a job uses of this machine; below it:
      environments.py, requirements_file.py, snapshots.py, host_paths.py
    job_wait.py        waits until a job reaches a phase
    job_history.py     records of ended jobs
    watching.py        changes of several objects
    logs.py            the output of all pods of a job, line by line
    container_runs.py  restarts of containers, each with its own log

Note: `submit` returns as soon as the job is stored. Call `wait()` to wait for its end.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hekla.api.history import JobRecord
    from hekla.kube.errors import (
        AlreadyExists,
        ApiError,
        BadRequest,
        ConfigError,
        Conflict,
        Forbidden,
        Invalid,
        KubeError,
        NotFound,
        TransportError,
        Unauthorized,
    )
    from hekla.sdk.array_status import ArrayStatus
    from hekla.sdk.async_handle import AsyncJobHandle, create_queue_async
    from hekla.sdk.builders import Job, Queue, Task
    from hekla.sdk.explanation import Explanation
    from hekla.sdk.functions.calls import CallTooLarge
    from hekla.sdk.functions.executor import Executor, JobFuture, map_jobs
    from hekla.sdk.functions.function_job import AsyncFunctionJob, FunctionJob
    from hekla.sdk.functions.results import FunctionFailed
    from hekla.sdk.handle import JobHandle, create_queue, list_jobs
    from hekla.sdk.host_environment import HostEnvironment
    from hekla.sdk.host_paths import HostPathError
    from hekla.sdk.job_history import history, history_async
    from hekla.sdk.job_retry import CannotRetry
    from hekla.sdk.job_wait import JobEnded
    from hekla.sdk.logs import LogLine
    from hekla.sdk.several_jobs import as_completed, gather
    from hekla.sdk.several_jobs_async import as_completed_async, gather_async, list_jobs_async
    from hekla.sdk.submission import submit, submit_async

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

# Names are imported when first used, so that a command imports only the modules it needs.
_HOMES = {
    "AlreadyExists": "hekla.kube.errors",
    "ApiError": "hekla.kube.errors",
    "ArrayStatus": "hekla.sdk.array_status",
    "AsyncFunctionJob": "hekla.sdk.functions.function_job",
    "AsyncJobHandle": "hekla.sdk.async_handle",
    "BadRequest": "hekla.kube.errors",
    "CallTooLarge": "hekla.sdk.functions.calls",
    "CannotRetry": "hekla.sdk.job_retry",
    "ConfigError": "hekla.kube.errors",
    "Conflict": "hekla.kube.errors",
    "Executor": "hekla.sdk.functions.executor",
    "Explanation": "hekla.sdk.explanation",
    "Forbidden": "hekla.kube.errors",
    "FunctionFailed": "hekla.sdk.functions.results",
    "FunctionJob": "hekla.sdk.functions.function_job",
    "HostEnvironment": "hekla.sdk.host_environment",
    "HostPathError": "hekla.sdk.host_paths",
    "Invalid": "hekla.kube.errors",
    "Job": "hekla.sdk.builders",
    "JobEnded": "hekla.sdk.job_wait",
    "JobFuture": "hekla.sdk.functions.executor",
    "JobHandle": "hekla.sdk.handle",
    "JobRecord": "hekla.api.history",
    "KubeError": "hekla.kube.errors",
    "LogLine": "hekla.sdk.logs",
    "NotFound": "hekla.kube.errors",
    "Queue": "hekla.sdk.builders",
    "Task": "hekla.sdk.builders",
    "TransportError": "hekla.kube.errors",
    "Unauthorized": "hekla.kube.errors",
    "as_completed": "hekla.sdk.several_jobs",
    "as_completed_async": "hekla.sdk.several_jobs_async",
    "create_queue": "hekla.sdk.handle",
    "create_queue_async": "hekla.sdk.async_handle",
    "gather": "hekla.sdk.several_jobs",
    "gather_async": "hekla.sdk.several_jobs_async",
    "history": "hekla.sdk.job_history",
    "history_async": "hekla.sdk.job_history",
    "list_jobs": "hekla.sdk.handle",
    "list_jobs_async": "hekla.sdk.several_jobs_async",
    "map_jobs": "hekla.sdk.functions.executor",
    "submit": "hekla.sdk.submission",
    "submit_async": "hekla.sdk.submission",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hekla.sdk' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({name for name in globals() if name.startswith("__")} | {*__all__})

"""Python SDK: build and submit jobs, wait for them, read their output.

    from hekla import Job, Queue, Task, submit

    job = submit(Job("hello", [Task("worker", image="busybox", command="echo hi", replicas=2)]))
    for line in job.logs(follow=True):
        print(line)
    assert job.wait() == "Completed"

In a coroutine, `await submit_async(...)` returns a handle with awaitable methods.

    builders.py        Job, Task, Queue: Python objects that become manifests
    validation.py      validation of an object before it is sent
    handle.py          JobHandle and `submit`
    async_handle.py    the same for asyncio
    job_phases.py      phases of a job and the conditions of `wait`
    job_commands.py    Commands and patches that change a job
    job_wait.py        waits until a job reaches a phase
    logs.py            the output of all pods of a job, line by line
    container_runs.py  restarts of containers, each with its own log

Note: `submit` returns as soon as the job is stored. Call `wait()` to wait for its end.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hekla.sdk.async_handle import AsyncJobHandle, submit_async
    from hekla.sdk.builders import Job, Queue, Task
    from hekla.sdk.handle import JobHandle, create_queue, submit
    from hekla.sdk.job_wait import JobEnded
    from hekla.sdk.logs import LogLine

__all__ = [
    "AsyncJobHandle",
    "Job",
    "JobEnded",
    "JobHandle",
    "LogLine",
    "Queue",
    "Task",
    "create_queue",
    "submit",
    "submit_async",
]

# Names are imported when first used, so that a command imports only the modules it needs.
_HOMES = {
    "AsyncJobHandle": "async_handle",
    "submit_async": "async_handle",
    "Job": "builders",
    "JobEnded": "job_wait",
    "Queue": "builders",
    "Task": "builders",
    "JobHandle": "handle",
    "create_queue": "handle",
    "submit": "handle",
    "LogLine": "logs",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hekla.sdk' has no attribute {name!r}")
    return getattr(import_module(f"hekla.sdk.{_HOMES[name]}"), name)

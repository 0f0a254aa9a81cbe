"""Jobs from Python: build, submit, wait, read the output.

    from hekla import Job, Queue, Task, submit

    job = submit(Job("hello", [Task("worker", image="busybox", command="echo hi", replicas=2)]))
    for line in job.logs(follow=True):
        print(line)
    assert job.wait() == "Completed"

In a coroutine, `await submit_async(...)` gives the same handle with awaitable methods.

    build.py         Job, Task, Queue: what to run, as Python; `manifest()` is the object to send
    checks.py        what is wrong with an object, told before it is sent
    intents.py       pure: the Command that suspends, the patch that scales, what counts as reached
    handle.py        JobHandle and `submit`
    waiting.py       until a job reaches a phase
    logs.py          the output of all pods of a job, line by line
    asynchronous.py  the same for asyncio

What a newcomer gets wrong: `submit` returns as soon as the job is stored. Call `wait()`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hekla.sdk.asynchronous import AsyncJobHandle, submit_async
    from hekla.sdk.build import Job, Queue, Task
    from hekla.sdk.handle import JobHandle, create_queue, submit
    from hekla.sdk.logs import LogLine

__all__ = [
    "AsyncJobHandle",
    "Job",
    "JobHandle",
    "LogLine",
    "Queue",
    "Task",
    "create_queue",
    "submit",
    "submit_async",
]

# Names are resolved when first used: the command line imports only the part it needs.
_HOMES = {
    "AsyncJobHandle": "asynchronous",
    "submit_async": "asynchronous",
    "Job": "build",
    "Queue": "build",
    "Task": "build",
    "JobHandle": "handle",
    "create_queue": "handle",
    "submit": "handle",
    "LogLine": "logs",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hekla.sdk' has no attribute {name!r}")
    return getattr(import_module(f"hekla.sdk.{_HOMES[name]}"), name)

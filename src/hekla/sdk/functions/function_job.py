"""The handles of functions that run as jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Generic, Literal, TypeVar

from hekla.sdk.async_handle import AsyncJobHandle
from hekla.sdk.exit_codes import NOT_FOUND
from hekla.sdk.functions import calls
from hekla.sdk.functions.results import Outcome, is_result, outcome_in
from hekla.sdk.handle import JobHandle
from hekla.sdk.host_paths import program_refusal
from hekla.sdk.job_wait import JobEnded
from hekla.sdk.logs import LogLine
from hekla.units.objects import Object

T = TypeVar("T")


class FunctionJob(JobHandle, Generic[T]):
    """A function that runs as a job; `result()` waits and returns what it returned.

    Example:
        job = FunctionJob.of("train-x7k2q")
        print(job.result(timeout_s=600))
    """

    def result(self, timeout_s: float | None = None) -> T:
        """Return what the function returned, or raise what it raised.

        Raise JobEnded if the job finished without a result, TimeoutError after `timeout_s`.
        """
        self.wait(timeout_s=timeout_s)
        outcome = outcome_in((line.text for line in super().logs()), token_of(self.object))
        if outcome is None:
            raise ended_without_result(self.object, self.explain().reason)
        result: T = result_of(outcome, self.object)
        return result

    def logs(
        self, *, follow: bool = False, task: str = "", attempt: int | Literal["all"] | None = None
    ) -> Iterator[LogLine]:
        """Yield what the function printed; see `JobHandle.logs`."""
        lines = super().logs(follow=follow, task=task, attempt=attempt)
        return (line for line in lines if not is_result(line.text))


class AsyncFunctionJob(AsyncJobHandle, Generic[T]):
    """A function that runs as a job, for asyncio; `await result()` returns what it returned.

    Example:
        job = await AsyncFunctionJob.of("train-x7k2q")
        print(await job.result(timeout_s=600))
    """

    async def result(self, timeout_s: float | None = None) -> T:
        """Return what the function returned, or raise what it raised.

        Raise JobEnded if the job finished without a result, TimeoutError after `timeout_s`.
        """
        await self.wait(timeout_s=timeout_s)
        lines = [line.text async for line in super().logs()]
        outcome = outcome_in(lines, token_of(self.object))
        if outcome is None:
            raise ended_without_result(self.object, (await self.explain()).reason)
        result: T = result_of(outcome, self.object)
        return result

    async def logs(
        self, *, follow: bool = False, task: str = "", attempt: int | Literal["all"] | None = None
    ) -> AsyncIterator[LogLine]:
        """Yield what the function printed; see `AsyncJobHandle.logs`."""
        async for line in super().logs(follow=follow, task=task, attempt=attempt):
            if not is_result(line.text):
                yield line


def token_of(job: Object) -> str:
    """Return the token of a job's results; ValueError if the job runs no function."""
    token = (job["metadata"].get("annotations") or {}).get(calls.TOKEN, "")
    if not token:
        name = f"{job['metadata']['namespace']}/{job['metadata']['name']}"
        raise ValueError(f"job {name} runs no function, so it has no result")
    return str(token)


def result_of(outcome: Outcome, job: Object, pod: str = "") -> Any:
    """Return the value of an outcome, or raise its exception."""
    kind, name = ("pod", pod) if pod else ("job", job["metadata"]["name"])
    return outcome.result(f"{kind} {job['metadata']['namespace']}/{name}")


def ended_without_result(job: Object, reason: str) -> JobEnded:
    """Return the error of a call whose process ended before it could print a result."""
    error = JobEnded(job)
    error.add_note(f"the function has no result: {reason}")
    python = calls.python_of(job) if f"code {NOT_FOUND}" in reason else None
    if python is not None and python.exists() and (why := program_refusal(python)):
        error.add_note(f"pods cannot run {python}: {why}")
    return error

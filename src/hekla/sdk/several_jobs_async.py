"""Several jobs in coroutines: `as_completed_async`, `gather_async`, `list_jobs_async`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Sequence
from typing import Any

from hekla.api.wellknown import JobPhase
from hekla.kube.client import Client
from hekla.kube.errors import Gone, KubeError, NotFound, TransportError
from hekla.kube.resources import JOBS
from hekla.sdk import async_clients, job_phases, timeouts
from hekla.sdk.async_handle import AsyncJobHandle
from hekla.sdk.handle import is_wanted
from hekla.sdk.job_wait import WATCH_S, JobEnded
from hekla.sdk.outages import Outage
from hekla.sdk.several_jobs import handles
from hekla.units.objects import Object


async def as_completed_async(
    jobs: Iterable[AsyncJobHandle], *, timeout_s: float | None = None
) -> AsyncIterator[AsyncJobHandle]:
    """Yield each job when it has finished, in any phase, the first one first.

    Raise TimeoutError with the reasons after `timeout_s`, NotFound if a job is deleted.

    Example:
        async for job in as_completed_async([await AsyncJobHandle.of("a")]):
            print(job.name, job.phase)
    """
    missing = {str(job.object["metadata"]["uid"]): job for job in handles(jobs)}
    finished: asyncio.Queue[Object | KubeError] = asyncio.Queue()
    watches = [asyncio.create_task(each) for each in _watches(list(missing.values()), finished)]
    deadline = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
    try:
        while missing:
            try:
                async with asyncio.timeout_at(deadline):
                    found = await finished.get()
            except TimeoutError:
                raise await _timed_out(timeout_s, list(missing.values())) from None
            if isinstance(found, KubeError):
                raise found
            job = missing.pop(found["metadata"]["uid"])
            job.object = found
            yield job
    finally:
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)


async def gather_async(
    jobs: Iterable[AsyncJobHandle], *, timeout_s: float | None = None
) -> list[AsyncJobHandle]:
    """Wait until all jobs have completed and return them in the given order.

    Raise JobEnded as soon as one finished in another phase; the others keep running. Raise
    TimeoutError with the reasons after `timeout_s`.

    Example:
        await gather_async([await AsyncJobHandle.of("a")], timeout_s=600)
    """
    given = handles(jobs)
    async for job in as_completed_async(given, timeout_s=timeout_s):
        if job.phase != JobPhase.COMPLETED:
            raise JobEnded(job.object)
    return given


async def list_jobs_async(
    *,
    namespace: str | None = None,
    all_namespaces: bool = False,
    queue: str = "",
    phase: str = "",
    labels: str = "",
    client: Client | None = None,
) -> list[AsyncJobHandle]:
    """Return the jobs of a namespace, sorted by name; the parameters are those of `list_jobs`.

    Example:
        for job in await list_jobs_async(queue="ml", phase="Running"):
            print(job.name)
    """
    client = client or await async_clients.default_client()
    phases = job_phases.known_phases(phase)
    where = None if all_namespaces else namespace or client.namespace
    listed = await client.list(JOBS, namespace=where, label_selector=labels)
    jobs = [AsyncJobHandle(client, job) for job in listed if is_wanted(job, queue, phases)]
    return sorted(jobs, key=lambda job: (job.namespace, job.name))


async def _timed_out(timeout_s: float | None, missing: Sequence[AsyncJobHandle]) -> TimeoutError:
    names = ", ".join(job.name for job in missing)
    lines: list[str] = []
    for job in missing[: timeouts.MAX_EXPLAINED]:
        lines += await timeouts.reasons_async(job.client, job.namespace, job.name)
    return timeouts.timed_out(f"not finished within {timeout_s or 0:g} s: {names}", lines)


def _watches(
    jobs: Sequence[AsyncJobHandle], finished: asyncio.Queue[Object | KubeError]
) -> Iterator[Coroutine[Any, Any, None]]:
    """Yield a watch for each cluster and namespace."""
    groups: dict[tuple[int, str], list[AsyncJobHandle]] = {}
    for job in jobs:
        groups.setdefault((id(job.client), job.namespace), []).append(job)
    for (_, namespace), group in groups.items():
        uids = {str(job.object["metadata"]["uid"]): job.name for job in group}
        yield _watch(group[0].client, namespace, uids, finished)


async def _watch(
    client: Client,
    namespace: str,
    missing: dict[str, str],
    finished: asyncio.Queue[Object | KubeError],
) -> None:
    """Put each job into the queue once, when it has finished; `missing` are names by UID."""
    outage = Outage()
    try:
        while missing:
            try:
                listed = await client.list(JOBS, namespace=namespace)
                outage.reached()
                for uid in missing.keys() - {job["metadata"]["uid"] for job in listed}:
                    raise _deleted(missing[uid])
                for job in listed:
                    _see(job, missing, finished)
                async with client.watch(
                    JOBS,
                    namespace=namespace,
                    resource_version=listed.resource_version,
                    timeout_s=WATCH_S,
                ) as events:
                    async for event in events:
                        uid = event.object["metadata"]["uid"]
                        if event.type == "DELETED" and uid in missing:
                            raise _deleted(missing[uid])
                        _see(event.object, missing, finished)
            except Gone:
                continue
            except TransportError as error:
                await asyncio.sleep(outage.pause_s(error))
    except KubeError as error:
        finished.put_nowait(error)


def _see(job: Object, missing: dict[str, str], finished: asyncio.Queue[Object | KubeError]) -> None:
    if job["metadata"]["uid"] in missing and job_phases.is_finished(job):
        del missing[job["metadata"]["uid"]]
        finished.put_nowait(job)


def _deleted(name: str) -> NotFound:
    return NotFound(404, "NotFound", f'jobs.batch.volcano.sh "{name}" was deleted')

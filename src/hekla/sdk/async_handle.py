"""Submitted jobs for asyncio: the same names as in `handle`, awaitable.

async with Client(kubeconfig.load()) as client:
    job = await submit_async(Job("hello", [Task(command="echo hi")]), client=client)
    async for line in job.logs(follow=True):
        print(line)
    await job.wait()
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from hekla.api import wellknown
from hekla.api.wellknown import Action
from hekla.kube.answers import LineSplitter
from hekla.kube.client import Client
from hekla.kube.errors import BadRequest, Gone, KubeError, NotFound, TransportError
from hekla.kube.resources import COMMANDS, JOBS, PODS, Resource
from hekla.sdk import job_commands, job_phases
from hekla.sdk.builders import Job
from hekla.sdk.container_runs import Run, Runs
from hekla.sdk.job_wait import RETRY_S, WATCH_S, JobEnded
from hekla.sdk.logs import LogLine, line_of, unreadable
from hekla.units.objects import Object


async def submit_async(
    job: Job | Object, *, client: Client, namespace: str | None = None
) -> AsyncJobHandle:
    """Store a job, built or as a manifest, and return a handle on it at once."""
    manifest = job if isinstance(job, dict) else job.manifest()
    return AsyncJobHandle(client, await client.create(JOBS, manifest, namespace=namespace))


class AsyncJobHandle:
    """One job on one cluster. `object` is its last known state; `refresh` reads it anew."""

    def __init__(self, client: Client, job: Object) -> None:
        self._client = client
        self.object = job

    @classmethod
    async def of(cls, name: str, *, client: Client, namespace: str | None = None) -> AsyncJobHandle:
        """A handle on a job that is already there."""
        return cls(client, await client.get(JOBS, name, namespace=namespace))

    def __repr__(self) -> str:
        return f"AsyncJobHandle({self.namespace}/{self.name}: {self.phase})"

    @property
    def name(self) -> str:
        return str(self.object["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.object["metadata"]["namespace"])

    @property
    def phase(self) -> str:
        """As last seen."""
        return job_phases.phase_of(self.object)

    async def refresh(self) -> Object:
        self.object = await self._client.get(JOBS, self.name, namespace=self.namespace)
        return self.object

    async def wait(
        self, until: str = job_phases.FINISHED, *, timeout_s: float | None = None
    ) -> str:
        """Until the job is `finished`, `started` or in a phase; returns its phase.

        JobEnded if it ended in another way, TimeoutError if time is up.
        """
        async with asyncio.timeout(timeout_s):
            async for job in self._states():
                self.object = job
                if job_phases.is_reached(job, until):
                    return self.phase
                if job_phases.is_beyond(job, until):
                    raise JobEnded(job)
        raise NotFound(404, "NotFound", f'jobs.batch.volcano.sh "{self.name}" was deleted')

    async def logs(self, *, follow: bool = False, task: str = "") -> AsyncIterator[LogLine]:
        """The output of its pods, line by line; with `follow` until the job has finished."""
        if not follow:
            runs = Runs()
            for run in [run for pod in await self.pods(task) for run in runs.news(pod)]:
                with contextlib.suppress(BadRequest, NotFound):
                    async for line in run_lines(self._client, run, follow=False):
                        yield line
            return
        lines: asyncio.Queue[LogLine | None] = asyncio.Queue()
        feeding = asyncio.create_task(self._feed(lines, task))
        try:
            while (one := await lines.get()) is not None:
                yield one
            await feeding
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)

    async def pods(self, task: str = "") -> list[Object]:
        selector = job_commands.pods_selector(self.name)
        if task:
            selector += f",{wellknown.TASK_SPEC}={task}"
        found = await self._client.list(PODS, namespace=self.namespace, label_selector=selector)
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    async def suspend(self) -> None:
        """Ask the controller to stop its pods and keep the job."""
        await self._client.create(COMMANDS, job_commands.command(self.object, Action.ABORT_JOB))

    async def resume(self) -> None:
        await self._client.create(COMMANDS, job_commands.command(self.object, Action.RESUME_JOB))

    async def scale(
        self, replicas: int, *, task: str = "", min_available: int | None = None
    ) -> None:
        """Give a task another size; a job with one task needs no `task`."""
        job = await self.refresh()
        patch = job_commands.scale_patch(job, replicas, task=task, min_available=min_available)
        self.object = await self._client.patch(
            JOBS, self.name, patch, namespace=self.namespace, kind="json"
        )

    async def delete(self) -> None:
        await self._client.delete(JOBS, self.name, namespace=self.namespace)

    async def _states(self) -> AsyncIterator[Object]:
        """The job now, and after each change; ends when it is deleted."""
        while True:
            job = await self.refresh()
            yield job
            try:
                async with self._watch(
                    JOBS, f"metadata.name={self.name}", "", job["metadata"]["resourceVersion"]
                ) as events:
                    async for event in events:
                        if event.type == "DELETED":
                            return
                        yield event.object
            except Gone:
                continue
            except TransportError:
                await asyncio.sleep(RETRY_S)

    def _watch(self, resource: Resource[Object], fields: str, labels: str, version: str) -> Any:
        return self._client.watch(
            resource,
            namespace=self.namespace,
            field_selector=fields,
            label_selector=labels,
            resource_version=version,
            timeout_s=WATCH_S,
        )

    async def _feed(self, lines: asyncio.Queue[LogLine | None], task: str) -> None:
        """Read each container that starts, until the job has finished."""
        readers = Readers(self._client, lines.put_nowait)
        finished = asyncio.create_task(self._until_finished())
        following = asyncio.create_task(self._follow_pods(readers, task))
        try:
            await asyncio.wait((finished, following), return_when=asyncio.FIRST_COMPLETED)
            for ended in (finished, following):
                if ended.done():
                    ended.result()
            # A quick pod may have come and gone between two events.
            for pod in await self.pods(task):
                readers.take_up(pod)
            await readers.finish()
        finally:
            for ended in (finished, following):
                ended.cancel()
            readers.cancel()
            lines.put_nowait(None)

    async def _until_finished(self) -> None:
        async for job in self._states():
            if job_phases.is_finished(job):
                return

    async def _follow_pods(self, readers: Readers, task: str) -> None:
        while True:
            try:
                for pod in await self.pods(task):
                    readers.take_up(pod)
                async with self._watch(
                    PODS, "", job_commands.pods_selector(self.name), ""
                ) as events:
                    async for event in events:
                        readers.take_up(event.object)
            except Gone:
                continue
            except TransportError:
                await asyncio.sleep(RETRY_S)


class Readers:
    """Read what containers say, all of them side by side, and the runs of each in turn."""

    def __init__(
        self, client: Client, give: Callable[[LogLine], None], *, from_the_start: bool = False
    ) -> None:
        self._client = client
        self._give = give
        self._runs = Runs(from_the_start=from_the_start)
        self._reading: dict[tuple[str, str], asyncio.Task[None]] = {}

    def take_up(self, pod: Object) -> None:
        """A pod has been heard of: read what has begun since."""
        for run in self._runs.news(pod):
            earlier = self._reading.get(run.place)
            self._reading[run.place] = asyncio.create_task(self._read(run, earlier))

    async def finish(self) -> None:
        """Until all that was taken up has been read to its end."""
        await asyncio.gather(*self._reading.values())

    def cancel(self) -> None:
        for reading in self._reading.values():
            reading.cancel()

    async def _read(self, run: Run, earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:
            await earlier
        try:
            async for line in run_lines(self._client, run, follow=not run.is_previous):
                self._give(line)
        except (BadRequest, NotFound):
            pass  # it is gone, and has nothing more to say
        except KubeError as error:
            self._give(unreadable(run, error))


async def run_lines(client: Client, run: Run, *, follow: bool) -> AsyncIterator[LogLine]:
    """What a container said in a run; what came before an error is given before it is raised."""
    splitter = LineSplitter(f"log of {run.pod}")
    failure: KubeError | None = None
    try:
        async with client.logs(
            run.pod,
            namespace=run.namespace,
            container=run.container,
            follow=follow,
            previous=run.is_previous,
            run=run.number,
        ) as chunks:
            async for chunk in chunks:
                for line in splitter.feed(chunk):
                    yield line_of(run, line)
    except KubeError as error:
        failure = error
    if rest := splitter.rest():
        yield line_of(run, rest)
    if failure is not None:
        raise failure

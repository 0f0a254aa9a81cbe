"""Submitted jobs for asyncio: the API of `hekla.sdk.handle` with awaitable methods.

    job = await submit_async(Job("hello", [Task(command="echo hi")]))
    async for line in job.logs(follow=True):
        print(line)
    await job.wait()

Without a `client` the calls of one event loop share one, which is closed when the loop ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

from hekla.api.wellknown import Action
from hekla.kube.client import Client
from hekla.kube.errors import AlreadyExists, BadRequest, Gone, KubeError, NotFound, TransportError
from hekla.kube.resources import COMMANDS, JOBS, PODGROUPS, PODS, QUEUES, Resource
from hekla.kube.responses import LineSplitter
from hekla.kube.sync_client import SyncClient
from hekla.sdk import job_commands, job_phases, job_retry, timeouts
from hekla.sdk.array_status import ArrayStatus, array_status
from hekla.sdk.async_clients import default_client
from hekla.sdk.attempts import attempt_lines
from hekla.sdk.builders import Queue
from hekla.sdk.container_runs import Run, Runs
from hekla.sdk.explanation import Explanation, explanation, queue_of
from hekla.sdk.job_wait import WATCH_S, JobEnded, timed_out
from hekla.sdk.logs import LogLine, failure_line, line_of
from hekla.sdk.manifests import A_QUEUE, as_manifest, raise_if_unknown
from hekla.sdk.notebook import jobs_html
from hekla.sdk.outages import Outage
from hekla.units.objects import Object


async def create_queue_async(queue: Queue | Object, *, client: Client | None = None) -> Object:
    """Create a queue and return the stored object.

    Example:
        await create_queue_async(Queue("ml", weight=3))
    """
    client = client or await default_client()
    manifest = as_manifest(queue, wanted=A_QUEUE)
    raise_if_unknown(manifest)
    return await client.create(QUEUES, manifest)


class AsyncJobHandle:
    """A job on a cluster, for asyncio; `object` is its last known state.

    Example:
        job = await AsyncJobHandle.of("hello")
        phase = await job.wait(timeout_s=600)
    """

    def __init__(self, client: Client, job: Object) -> None:
        self._client = client
        self.object = job

    @classmethod
    async def of(
        cls, name: str, *, namespace: str | None = None, client: Client | None = None
    ) -> AsyncJobHandle:
        """Return the handle of an existing job."""
        client = client or await default_client()
        return cls(client, await client.get(JOBS, name, namespace=namespace))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.namespace}/{self.name}: {self.phase})"

    def _repr_html_(self) -> str:
        return jobs_html([self.object])

    @property
    def client(self) -> Client:
        """The client of the job's cluster."""
        return self._client

    @property
    def name(self) -> str:
        """The name of the job."""
        return str(self.object["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """The namespace of the job."""
        return str(self.object["metadata"]["namespace"])

    @property
    def phase(self) -> str:
        """The phase when the job was last read."""
        return job_phases.phase_of(self.object)

    async def refresh(self) -> Object:
        """Read the job again and return it."""
        self.object = await self._client.get(JOBS, self.name, namespace=self.namespace)
        return self.object

    async def wait(
        self, until: str = job_phases.FINISHED, *, timeout_s: float | None = None
    ) -> str:
        """Wait until the job is `finished`, `started` or in the given phase; return its phase.

        Raise JobEnded if it finished in another phase, TimeoutError with the reasons after
        `timeout_s`.
        """
        try:
            async with asyncio.timeout(timeout_s):
                async for job in self._states():
                    self.object = job
                    if job_phases.is_reached(job, until):
                        return self.phase
                    if job_phases.is_unreachable(job, until):
                        raise JobEnded(job)
        except TimeoutError:
            reasons = await timeouts.reasons_async(self._client, self.namespace, self.name)
            raise timed_out(self.name, until, timeout_s, reasons) from None
        raise NotFound(404, "NotFound", f'jobs.batch.volcano.sh "{self.name}" was deleted')

    async def logs(
        self, *, follow: bool = False, task: str = "", attempt: int | Literal["all"] | None = None
    ) -> AsyncIterator[LogLine]:
        """Yield the output of its pods line by line; with `follow` until the job has ended.

        `attempt` is the number of a retry, counted from 1, or `all`; without it, the last.
        """
        if attempt is not None:
            for line in await asyncio.to_thread(self._attempt_lines, attempt, task):
                yield line
            return
        if not follow:
            runs = Runs()
            for run in [run for pod in await self.pods(task) for run in runs.new_runs(pod)]:
                with contextlib.suppress(BadRequest, NotFound):
                    async for line in run_lines(self._client, run, follow=False):
                        yield line
            return
        lines: asyncio.Queue[LogLine | None] = asyncio.Queue()
        reader = asyncio.create_task(self._read_all(lines, task))
        try:
            while (one := await lines.get()) is not None:
                yield one
            await reader
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    def _attempt_lines(self, attempt: int | Literal["all"], task: str) -> list[LogLine]:
        with SyncClient(self._client.config, component="sdk") as client:
            job = client.get(JOBS, self.name, namespace=self.namespace)
            wanted = None if attempt == "all" else attempt
            return list(attempt_lines(client, job, wanted, task=task))

    async def pods(self, task: str = "") -> list[Object]:
        """Return the pods of the job, or of one task, sorted by name."""
        selector = job_commands.pods_selector(self.name, task)
        listed = await self._client.list(PODS, namespace=self.namespace, label_selector=selector)
        return sorted(listed, key=lambda pod: str(pod["metadata"]["name"]))

    async def explain(self) -> Explanation:
        """Return why the job is pending, running or failed, and what to do next."""
        job = await self.refresh()
        name = job_commands.group_name(job)
        group = await self._client.find(PODGROUPS, name, namespace=self.namespace)
        queue = await self._client.find(QUEUES, queue_of(job))
        return explanation(job, group, queue, await self.pods())

    async def suspend(self) -> None:
        """Suspend the job: the controller terminates its pods and keeps the job."""
        await self._client.create(COMMANDS, job_commands.command(self.object, Action.ABORT_JOB))

    async def resume(self) -> None:
        """Resume a suspended job."""
        await self._client.create(COMMANDS, job_commands.command(self.object, Action.RESUME_JOB))

    async def scale(
        self, replicas: int, *, task: str = "", min_available: int | None = None
    ) -> None:
        """Set the replicas of a task; `task` is optional for a job with one task."""
        job = await self.refresh()
        patch = job_commands.scale_patch(job, replicas, task=task, min_available=min_available)
        self.object = await self._client.patch(
            JOBS, self.name, patch, namespace=self.namespace, kind="json"
        )

    async def array_status(self) -> ArrayStatus | None:
        """Return the indices of an array by state; None for another job."""
        return array_status(
            await self.refresh(), job_commands.owned(self.object, await self.pods())
        )

    async def retry(self) -> AsyncJobHandle:
        """Run a failed job again, of an array only the indices that did not succeed.

        Raise CannotRetry if it has not failed.
        """
        job = await self.refresh()
        manifest = job_retry.retry_of(job, job_commands.owned(job, await self.pods()))
        for name in job_retry.names(job):
            manifest["metadata"]["name"] = name
            with contextlib.suppress(AlreadyExists):
                created = await self._client.create(JOBS, manifest, namespace=self.namespace)
                return AsyncJobHandle(self._client, created)
        raise job_retry.no_free_name(job)

    async def delete(self) -> None:
        """Delete the job and its pods."""
        await self._client.delete(JOBS, self.name, namespace=self.namespace)

    async def _states(self) -> AsyncIterator[Object]:
        """Yield the job and each later state of it, until it is deleted."""
        outage = Outage()
        is_known = False
        while True:
            try:
                job = await self.refresh()
                outage.reached()
                is_known = True
                yield job
                async with self._watch(
                    JOBS, f"metadata.name={self.name}", "", job["metadata"]["resourceVersion"]
                ) as events:
                    async for event in events:
                        if event.type == "DELETED":
                            return
                        yield event.object
            except NotFound:
                if is_known:
                    return  # deleted between two watches
                raise
            except Gone:
                continue
            except TransportError as error:
                await asyncio.sleep(outage.pause_s(error))

    def _watch(self, resource: Resource[Object], fields: str, labels: str, version: str) -> Any:
        return self._client.watch(
            resource,
            namespace=self.namespace,
            field_selector=fields,
            label_selector=labels,
            resource_version=version,
            timeout_s=WATCH_S,
        )

    async def _read_all(self, lines: asyncio.Queue[LogLine | None], task: str) -> None:
        """Read each container that starts, until the job has finished."""
        readers = LogReaders(self._client, lines.put_nowait)
        finished = asyncio.create_task(self._until_finished())
        following = asyncio.create_task(self._follow_pods(readers, task))
        try:
            await asyncio.wait((finished, following), return_when=asyncio.FIRST_COMPLETED)
            for ended in (finished, following):
                if ended.done():
                    ended.result()
            # A short-lived pod may have started and finished between two events.
            for pod in await self.pods(task):
                readers.read_new_runs(pod)
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

    async def _follow_pods(self, readers: LogReaders, task: str) -> None:
        outage = Outage()
        while True:
            try:
                pods = await self.pods(task)
                outage.reached()
                for pod in pods:
                    readers.read_new_runs(pod)
                async with self._watch(
                    PODS, "", job_commands.pods_selector(self.name, task), ""
                ) as events:
                    async for event in events:
                        readers.read_new_runs(event.object)
            except Gone:
                continue
            except TransportError as error:
                await asyncio.sleep(outage.pause_s(error))


class LogReaders:
    """Reads the logs of containers concurrently, and the runs of one container in order."""

    def __init__(
        self, client: Client, emit: Callable[[LogLine], None], *, from_the_start: bool = False
    ) -> None:
        self._client = client
        self._emit = emit
        self._runs = Runs(from_the_start=from_the_start)
        self._reads: dict[tuple[str, str], asyncio.Task[None]] = {}

    def read_new_runs(self, pod: Object) -> None:
        """Start reading the runs of a pod that are new."""
        for run in self._runs.new_runs(pod):
            earlier = self._reads.get(run.key)
            self._reads[run.key] = asyncio.create_task(self._read(run, earlier))

    async def finish(self) -> None:
        """Wait until all started reads are complete."""
        await asyncio.gather(*self._reads.values())

    def cancel(self) -> None:
        for reading in self._reads.values():
            reading.cancel()

    async def _read(self, run: Run, earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:
            await earlier
        try:
            async for line in self._all_lines(run):
                self._emit(line)
        except (BadRequest, NotFound):
            pass  # the container is gone and has no more output
        except KubeError as error:
            self._emit(failure_line(run, error))

    async def _all_lines(self, run: Run) -> AsyncIterator[LogLine]:
        """Yield each line of a run once, also if the server restarts meanwhile."""
        count = 0
        outage = Outage()
        while True:
            number = 0
            try:
                async for line in run_lines(self._client, run, follow=not run.is_previous):
                    outage.reached()
                    number += 1
                    if number > count:
                        count = number
                        yield line
                return
            except TransportError as error:
                await asyncio.sleep(outage.pause_s(error))


async def run_lines(
    client: Client, run: Run, *, follow: bool, tail_lines: int | None = None
) -> AsyncIterator[LogLine]:
    """Yield the lines of one run of a container; raise an error only after the received lines.

    If the connection is lost, the line that was cut off is left out.
    """
    splitter = LineSplitter(f"log of {run.pod}")
    failure: KubeError | None = None
    try:
        async with client.logs(
            run.pod,
            namespace=run.namespace,
            container=run.container,
            follow=follow,
            previous=run.is_previous,
            tail_lines=tail_lines,
            run=run.number,
            uid=run.uid,
        ) as chunks:
            async for chunk in chunks:
                for line in splitter.feed(chunk):
                    yield line_of(run, line)
    except KubeError as error:
        failure = error
    if isinstance(failure, TransportError):
        raise failure
    if rest := splitter.rest():
        yield line_of(run, rest)
    if failure is not None:
        raise failure

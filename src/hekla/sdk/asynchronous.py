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
from collections.abc import AsyncIterator
from typing import Any

from hekla.api import wellknown
from hekla.api.wellknown import Action
from hekla.kube.answers import LineSplitter
from hekla.kube.client import Client
from hekla.kube.errors import BadRequest, Gone, KubeError, NotFound, TransportError
from hekla.kube.resources import COMMANDS, JOBS, PODS, Resource
from hekla.sdk import intents
from hekla.sdk.build import Job
from hekla.sdk.logs import LogLine, is_started
from hekla.sdk.waiting import RETRY_S, WATCH_S, JobEnded

Object = dict[str, Any]


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
        return intents.phase_of(self.object)

    async def refresh(self) -> Object:
        self.object = await self._client.get(JOBS, self.name, namespace=self.namespace)
        return self.object

    async def wait(self, until: str = intents.FINISHED, *, timeout_s: float | None = None) -> str:
        """Until the job is `finished`, `started` or in a phase; returns its phase.

        JobEnded if it ended in another way, TimeoutError if time is up.
        """
        async with asyncio.timeout(timeout_s):
            async for job in self._states():
                self.object = job
                if intents.is_reached(job, until):
                    return self.phase
                if intents.is_beyond(job, until):
                    raise JobEnded(job)
        raise NotFound(404, "NotFound", f'jobs.batch.volcano.sh "{self.name}" was deleted')

    async def logs(self, *, follow: bool = False, task: str = "") -> AsyncIterator[LogLine]:
        """The output of its pods, line by line; with `follow` until the job has finished."""
        if not follow:
            for pod in await self.pods(task):
                if is_started(pod):
                    async for line in self._pod_lines(pod, follow=False):
                        yield line
            return
        lines: asyncio.Queue[LogLine | None] = asyncio.Queue()
        feeding = asyncio.create_task(self._feed(lines, task))
        try:
            while (one := await lines.get()) is not None:
                yield one
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)

    async def pods(self, task: str = "") -> list[Object]:
        selector = intents.pods_selector(self.name)
        if task:
            selector += f",{wellknown.TASK_SPEC}={task}"
        found = await self._client.list(PODS, namespace=self.namespace, label_selector=selector)
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    async def suspend(self) -> None:
        """Ask the controller to stop its pods and keep the job."""
        await self._client.create(COMMANDS, intents.command(self.object, Action.ABORT_JOB))

    async def resume(self) -> None:
        await self._client.create(COMMANDS, intents.command(self.object, Action.RESUME_JOB))

    async def scale(
        self, replicas: int, *, task: str = "", min_available: int | None = None
    ) -> None:
        """Give a task another size; a job with one task needs no `task`."""
        job = await self.refresh()
        patch = intents.scale(job, replicas, task=task, min_available=min_available)
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
        """Start a reader for each pod that starts, until the job has finished."""
        seen: set[str] = set()
        try:
            async with asyncio.TaskGroup() as readers:
                watcher = readers.create_task(self._readers(lines, task, seen, readers))
                async for job in self._states():
                    if intents.is_finished(job):
                        break
                watcher.cancel()
                # A quick pod may have come and gone between two events.
                for pod in await self.pods(task):
                    self._take_up(pod, lines, seen, readers)
        finally:
            await lines.put(None)

    async def _readers(
        self,
        lines: asyncio.Queue[LogLine | None],
        task: str,
        seen: set[str],
        readers: asyncio.TaskGroup,
    ) -> None:
        while True:
            for pod in await self.pods(task):
                self._take_up(pod, lines, seen, readers)
            async with self._watch(PODS, "", intents.pods_selector(self.name), "") as events:
                async for event in events:
                    self._take_up(event.object, lines, seen, readers)

    def _take_up(
        self,
        pod: Object,
        lines: asyncio.Queue[LogLine | None],
        seen: set[str],
        readers: asyncio.TaskGroup,
    ) -> None:
        if pod["metadata"]["uid"] not in seen and is_started(pod):
            seen.add(pod["metadata"]["uid"])
            readers.create_task(self._pump(pod, lines))

    async def _pump(self, pod: Object, lines: asyncio.Queue[LogLine | None]) -> None:
        async for line in self._pod_lines(pod, follow=True):
            await lines.put(line)

    async def _pod_lines(self, pod: Object, *, follow: bool) -> AsyncIterator[LogLine]:
        for container in pod["spec"]["containers"]:
            with contextlib.suppress(BadRequest, NotFound):
                async for line in container_lines(
                    self._client, pod, container["name"], follow=follow
                ):
                    yield line


async def container_lines(
    client: Client, pod: Object, container: str, *, follow: bool
) -> AsyncIterator[LogLine]:
    """The output of one container; what came before an error is given before it is raised."""
    metadata = pod["metadata"]
    splitter = LineSplitter(f"log of {metadata['name']}")
    failure: KubeError | None = None
    try:
        async with client.logs(
            metadata["name"], namespace=metadata["namespace"], container=container, follow=follow
        ) as chunks:
            async for chunk in chunks:
                for line in splitter.feed(chunk):
                    yield _line(metadata["name"], container, line)
    except KubeError as error:
        failure = error
    if rest := splitter.rest():
        yield _line(metadata["name"], container, rest)
    if failure is not None:
        raise failure


def _line(pod: str, container: str, line: bytes) -> LogLine:
    return LogLine(pod, container, line.decode(errors="replace").rstrip("\r"))

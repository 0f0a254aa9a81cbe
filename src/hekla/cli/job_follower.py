"""Submit objects and follow their jobs until they finish, with output and Ctrl-C handling.

    outcome = await JobFollower(client, screen, jobs).run(objects)

Objects are sent in the order of their files. Jobs and JobFlows are followed until they finish;
other objects are created, or applied if they exist.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import click
import msgspec

from hekla.api.wellknown import (
    BATCH_API,
    FLOW_API,
    JOB_NAME,
    Action,
    FlowPhase,
    JobPhase,
    PodPhase,
)
from hekla.cli.progress import Jobs, Screen
from hekla.kube.client import Client
from hekla.kube.errors import AlreadyExists, ApiError
from hekla.kube.informers import Informer
from hekla.kube.resources import COMMANDS, JOB_FLOWS, JOBS, PODGROUPS, PODS, Resource, resource
from hekla.sdk import job_commands
from hekla.sdk.async_handle import LogReaders
from hekla.units.objects import Object

TERMINAL_PHASES = {*JobPhase.FINISHED, JobPhase.ABORTED}
"""A job that a policy aborted could be resumed, but `hekla run` does not."""
TERMINAL_FLOW_PHASES = {FlowPhase.SUCCEED, FlowPhase.FAILED}
INTERRUPTED = 128 + signal.SIGINT
FIELD_MANAGER = "hekla-run"
TICK_S = 1.0


class Detached(Exception):
    """The user detached; the jobs keep running."""


class Aborted(Exception):
    """The user aborted the jobs."""


class JobFollower:
    """Submits objects and follows the jobs among them until they finish."""

    def __init__(
        self,
        client: Client,
        screen: Screen,
        jobs: Jobs,
        *,
        replace: bool = False,
        can_detach: bool = True,
    ) -> None:
        self._client = client
        self._screen = screen
        self._jobs = jobs
        self._replace = replace
        self._can_detach = can_detach
        self._submitted: set[str] = set()
        self._flows: dict[str, Object] = {}
        self._namespaces: set[str] = set()
        self._readers = LogReaders(
            client, lambda line: screen.output(line.pod, line.text), from_the_start=True
        )
        self._exit_codes: list[int] = []
        self._changed = asyncio.Event()
        self._interrupted = asyncio.Event()

    @property
    def exit_code(self) -> int:
        """The highest exit code of containers in failed pods, as in `srun`; at least 1."""
        return max([1, *(code for code in self._exit_codes if 0 < code < 256)])

    async def run(self, objects: list[Object]) -> bool:
        """Submit the objects, follow the jobs, and return whether all completed."""
        for obj in objects:
            await self._submit(obj)
        if not self._submitted and not self._flows:
            return True
        with _signals(self._interrupted):
            async with self._informers():
                finished = asyncio.create_task(self._until_ended())
                try:
                    await self._wait_or_interrupt(finished)
                finally:
                    finished.cancel()
                    self._readers.cancel()
        return self._all_completed()

    # Sending

    async def _submit(self, obj: Object) -> None:
        handle = await self._resource(obj)
        try:
            created: Object = await self._client.create(handle, obj)
            done = "created"
        except AlreadyExists:
            created, done = await self._replace_or_apply(handle, obj)
        metadata = created["metadata"]
        if _kind(obj) == _JOB:
            self._submitted.add(metadata["uid"])
            self._jobs.followed[metadata["uid"]] = created
        elif _kind(obj) == _FLOW:
            self._flows[metadata["uid"]] = created
        if metadata.get("namespace"):
            self._namespaces.add(metadata["namespace"])
        self._screen.message(f"{handle}/{metadata['name']} {done}")

    async def _replace_or_apply(self, handle: Resource[Any], obj: Object) -> tuple[Object, str]:
        """Replace an existing job if requested; apply any other existing object."""
        name = obj["metadata"]["name"]
        namespace = obj["metadata"].get("namespace")
        if _kind(obj) not in (_JOB, _FLOW):
            applied = await self._client.apply(
                handle, obj, namespace=namespace, field_manager=FIELD_MANAGER, force=True
            )
            return applied, "configured"
        if not self._replace:
            raise click.ClickException(
                f"{handle}/{name} already exists; `hekla run --replace` deletes it first, "
                f"`hekla job view {name}` shows it"
            )
        await self._delete(handle, name, namespace)
        return await self._client.create(handle, obj), "replaced"

    async def _delete(self, handle: Resource[Any], name: str, namespace: str | None) -> None:
        gone = asyncio.Event()
        watched: Informer[Object] = Informer(
            self._client, handle, dict, namespace=namespace, field_selector=f"metadata.name={name}"
        )
        watched.add_handler(lambda _, __, new: gone.set() if new is None else None)
        async with watched:
            await watched.synced()
            await self._client.delete(handle, name, namespace=namespace)
            await gone.wait()

    async def _resource(self, obj: Object) -> Resource[Any]:
        """Return the API resource of an object's kind, from discovery."""
        version, kind = obj["apiVersion"], obj["kind"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        try:
            listed = msgspec.json.decode(await self._client.request("GET", root))
        except ApiError as error:
            raise click.ClickException(f"{kind}: this cluster has no {version}") from error
        for one in listed["resources"]:
            if one["kind"] == kind and "/" not in one["name"]:
                return resource(version, one["name"], kind=kind, namespaced=one["namespaced"])
        raise click.ClickException(f"this cluster has no kind {kind} in {version}")

    # Watching

    @contextlib.asynccontextmanager
    async def _informers(self) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for namespace in sorted(self._namespaces):
                # Only pods of jobs have this label; `_on_pod` filters by job.
                pods = Informer(
                    self._client, PODS, dict, namespace=namespace, label_selector=JOB_NAME
                )
                jobs = Informer(self._client, JOBS, dict, namespace=namespace)
                jobs.add_handler(self._on_job)
                pods.add_handler(self._on_pod)
                await stack.enter_async_context(jobs)
                await jobs.synced()
                await stack.enter_async_context(pods)
                if self._flows:
                    flows = Informer(self._client, JOB_FLOWS, dict, namespace=namespace)
                    flows.add_handler(self._on_flow)
                    await stack.enter_async_context(flows)
            groups = Informer(self._client, PODGROUPS, dict)
            groups.add_handler(self._on_group)
            await stack.enter_async_context(groups)
            yield

    def _on_job(self, _: str, old: Object | None, job: Object | None) -> None:
        seen = job or old
        assert seen is not None
        uid = seen["metadata"]["uid"]
        if uid not in self._submitted and not self._is_of_flow(seen):
            return
        if job is None:
            # Deleted by a user or by its TTL: no further events will come.
            self._submitted.discard(uid)
            if self._jobs.phase(uid) not in TERMINAL_PHASES:
                self._jobs.followed[uid] = _with_phase(seen, JobPhase.TERMINATED)
                self._screen.message(f"job {seen['metadata']['name']} was deleted")
        else:
            self._jobs.followed[uid] = job
        self._notify()

    def _is_of_flow(self, job: Object) -> bool:
        owners = job["metadata"].get("ownerReferences") or ()
        return any(owner["uid"] in self._flows for owner in owners)

    def _on_flow(self, _: str, __: Object | None, flow: Object | None) -> None:
        if flow is not None and flow["metadata"]["uid"] in self._flows:
            self._flows[flow["metadata"]["uid"]] = flow
            self._notify()

    def _on_group(self, _: str, old: Object | None, group: Object | None) -> None:
        seen = group or old
        assert seen is not None
        key = (seen["metadata"]["namespace"], seen["metadata"]["name"])
        if group is None:
            self._jobs.groups.pop(key, None)
        else:
            self._jobs.groups[key] = group
        self._notify()

    def _on_pod(self, _: str, __: Object | None, pod: Object | None) -> None:
        if pod is None:
            return
        owners = {owner["uid"] for owner in pod["metadata"].get("ownerReferences") or ()}
        if not owners & self._jobs.followed.keys():
            return
        if (pod.get("status") or {}).get("phase") == PodPhase.FAILED:
            self._exit_codes += _exit_codes(pod)
        self._readers.read_new_runs(pod)

    def _notify(self) -> None:
        self._screen.changed()
        self._changed.set()

    # The end

    async def _until_ended(self) -> None:
        while not self._is_finished():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._changed.wait()
            self._changed.clear()
            self._screen.changed()  # update the elapsed times
        await self._list_again()
        await self._readers.finish()

    async def _list_again(self) -> None:
        """List jobs and pods once more: watches of different kinds are not synchronized."""
        for namespace in sorted(self._namespaces):
            for job in await self._client.list(JOBS, namespace=namespace):
                self._on_job("", None, job)
            for pod in await self._client.list(PODS, namespace=namespace, label_selector=JOB_NAME):
                self._on_pod("", None, pod)

    def _is_finished(self) -> bool:
        flows = (_flow_phase(flow) in TERMINAL_FLOW_PHASES for flow in self._flows.values())
        return all(flows) and all(
            self._jobs.phase(uid) in TERMINAL_PHASES for uid in self._submitted
        )

    def _all_completed(self) -> bool:
        flows = (_flow_phase(flow) == FlowPhase.SUCCEED for flow in self._flows.values())
        jobs = (self._jobs.phase(uid) == JobPhase.COMPLETED for uid in self._jobs.followed)
        return all(flows) and all(jobs)

    # Ctrl-C

    async def _wait_or_interrupt(self, finished: asyncio.Task[None]) -> None:
        """Wait until the jobs end, or the user detaches or aborts."""
        while not finished.done():
            interrupted = asyncio.create_task(self._interrupted.wait())
            await asyncio.wait((finished, interrupted), return_when=asyncio.FIRST_COMPLETED)
            interrupted.cancel()
            if finished.done():
                break
            self._interrupted.clear()
            choice = await self._choice()
            if choice == "d":
                raise Detached
            if choice == "a":
                await self._abort()
                await finished
                raise Aborted
        await finished

    async def _choice(self) -> str:
        if not sys.stdin.isatty() or not sys.stdout.isatty():
            return "a"
        if not self._can_detach:
            self._screen.message("aborting; the temporary cluster ends with the run")
            return "a"
        question = "detach and keep the jobs running (d), abort them (a), or stay (s)? "
        self._screen.message(question)
        answer = asyncio.create_task(_read_line())
        again = asyncio.create_task(self._interrupted.wait())
        await asyncio.wait((answer, again), return_when=asyncio.FIRST_COMPLETED)
        again.cancel()
        if not answer.done():
            answer.cancel()
            return "a"
        return (answer.result().strip().lower() or "s")[0]

    async def _abort(self) -> None:
        for uid, job in self._jobs.followed.items():
            if self._jobs.phase(uid) not in TERMINAL_PHASES:
                await self._client.create(COMMANDS, job_commands.command(job, Action.ABORT_JOB))
                self._screen.message(f"job {job['metadata']['name']}: abort requested")


def is_followed(obj: Object) -> bool:
    """Return whether a run waits for this object."""
    return _kind(obj) in (_JOB, _FLOW)


_JOB, _FLOW = (BATCH_API, "Job"), (FLOW_API, "JobFlow")


def _kind(obj: Object) -> tuple[str, str]:
    return obj["apiVersion"], obj["kind"]


def _flow_phase(flow: Object) -> str:
    return str(((flow.get("status") or {}).get("state") or {}).get("phase") or "")


def _with_phase(job: Object, phase: str) -> Object:
    return {**job, "status": {**(job.get("status") or {}), "state": {"phase": phase}}}


def _exit_codes(pod: Object) -> list[int]:
    statuses = (pod["status"].get("containerStatuses") or ()) if "status" in pod else ()
    ends = ((one.get("state") or {}).get("terminated") or {} for one in statuses)
    return [int(end.get("exitCode") or 0) for end in ends]


@contextlib.contextmanager
def _signals(interrupted: asyncio.Event) -> Iterator[None]:
    """Set the event on SIGINT and SIGTERM inside the block."""
    loop = asyncio.get_running_loop()
    for one in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(one, interrupted.set)
    try:
        yield
    finally:
        for one in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(one)


async def _read_line() -> str:
    """Read one line from the terminal without blocking the event loop."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[str] = loop.create_future()

    def read() -> None:
        loop.remove_reader(sys.stdin)
        ready.set_result(sys.stdin.readline())

    loop.add_reader(sys.stdin, read)
    try:
        return await ready
    finally:
        loop.remove_reader(sys.stdin)

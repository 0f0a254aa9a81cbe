"""Submit objects and follow their jobs until they finish, with output and Ctrl-C handling.

    outcome = await JobFollower(client, screen, jobs).run(objects)

Objects are sent in the order of their files. Jobs and JobFlows are followed until they finish;
other objects are created, or applied if they exist.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator

from hekla.api.arrays import index_of_pod
from hekla.api.wellknown import (
    Action,
    FlowPhase,
    JobPhase,
    PodPhase,
)
from hekla.cli import interrupts
from hekla.cli.failure_report import (
    TAIL_LINES,
    FailedContainer,
    by_index,
    failed_containers,
    heading,
    report,
)
from hekla.cli.job_scope import WARNINGS, JobScope
from hekla.cli.object_sender import FLOW, JOB, ObjectSender, kind_of
from hekla.cli.progress import Jobs, Screen
from hekla.cli.rights import refusal_to_list
from hekla.kube.client import Client
from hekla.kube.errors import KubeError, TransportError
from hekla.kube.informers import Informer
from hekla.kube.resources import (
    COMMANDS,
    EVENTS,
    JOB_FLOWS,
    JOBS,
    PODGROUPS,
    PODS,
    Resource,
)
from hekla.sdk import job_commands
from hekla.sdk.async_handle import LogReaders, run_lines
from hekla.sdk.container_runs import Run
from hekla.sdk.logs import LogLine
from hekla.units.objects import Object

TERMINAL_PHASES = {*JobPhase.FINISHED, JobPhase.ABORTED}
"""A job that a policy aborted could be resumed, but `hekla run` does not."""
TERMINAL_FLOW_PHASES = {FlowPhase.SUCCEED, FlowPhase.FAILED}
INTERRUPTED = 128 + signal.SIGINT
TICK_S = 1.0
CATCH_UP_S = 5.0
MAX_GROUPS = 1000
"""PodGroups that a run of one job watches, to show the position in the queue."""
TAILS = 3
"""Failed containers whose output is read again if it was not shown."""


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
        interrupt: interrupts.Interrupt | None = None,
    ) -> None:
        self._client = client
        self._screen = screen
        self._jobs = jobs
        self._sender = ObjectSender(client, replace=replace)
        self._can_detach = can_detach
        self._is_aborting = False
        self._submitted: set[str] = set()
        self._flows: dict[str, Object] = {}
        self._namespaces: set[str] = set()
        self._pods: dict[str, Informer[Object]] = {}
        """The pods of each namespace."""
        self._readers = LogReaders(client, self._show, from_the_start=True)
        self._shown: set[tuple[str, str]] = set()
        """The pods and containers whose output was shown."""
        self._exit_codes: set[int] = set()
        self._exit_codes_of_deleted: set[int] = set()
        """Of pods that were deleted before they failed: the job ended them for another failure."""
        self._failed: dict[str, dict[str, list[FailedContainer]]] = {}
        """By job and pod: the containers for which it failed last."""
        self._deleted: set[str] = set()
        """UIDs of followed jobs that do not exist any more."""
        self._unfinished: set[str] = set()
        """Those of them that were deleted before they had ended."""
        self._problems = 0
        """How many informers cannot follow the server."""
        self._said_problem = False
        self._changed = asyncio.Event()
        self._interrupted = interrupt or interrupts.Interrupt()

    @property
    def deleted(self) -> frozenset[str]:
        """The UIDs of followed jobs that do not exist any more."""
        return frozenset(self._deleted)

    @property
    def exit_code(self) -> int:
        """The highest exit code of containers in failed pods, as in `srun`; at least 1.

        What the end of other pods did to a pod counts only if nothing else is known.
        """
        codes = self._exit_codes or self._exit_codes_of_deleted
        return max([1, *(code for code in codes if 0 < code < 256)])

    async def run(self, objects: list[Object]) -> bool:
        """Submit the objects, follow the jobs, and return whether all completed."""
        await self.submit(objects)
        if not self._submitted and not self._flows:
            return True
        with interrupts.signals(self._interrupted):
            async with self._informers():
                finished = asyncio.create_task(self._until_ended())
                try:
                    await self._wait_or_interrupt(finished)
                finally:
                    finished.cancel()
                    self._readers.cancel()
        completed = self._all_completed()
        if not completed:
            await self._report_failures()
        return completed

    def _show(self, line: LogLine) -> None:
        self._shown.add((line.pod, line.container))
        self._screen.output(line.source, line.text)

    # Sending

    async def submit(self, objects: list[Object]) -> None:
        """Create or apply the objects."""
        for obj in objects:
            await self._submit(obj)

    async def _submit(self, obj: Object) -> None:
        created, done = await self._sender.send(obj)
        metadata = created["metadata"]
        if kind_of(obj) == JOB:
            self._submitted.add(metadata["uid"])
            self._jobs.followed[metadata["uid"]] = created
        elif kind_of(obj) == FLOW:
            self._flows[metadata["uid"]] = created
            self._jobs.add_flow(created)
        if metadata.get("namespace"):
            self._namespaces.add(metadata["namespace"])
        self._screen.message(done)

    # Watching

    @contextlib.asynccontextmanager
    async def _informers(self) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for namespace in sorted(self._namespaces):
                scope = self._scope(namespace)
                pods = self._informer(PODS, namespace, label_selector=scope.pod_labels)
                jobs = self._informer(JOBS, namespace, field_selector=scope.job_field)
                jobs.add_handler(self._on_job)
                pods.add_handler(self._on_pod)
                self._pods[namespace] = pods
                await stack.enter_async_context(jobs)
                await jobs.synced()
                await stack.enter_async_context(pods)
                if self._flows:
                    flows = self._informer(JOB_FLOWS, namespace)
                    flows.add_handler(self._on_flow)
                    await stack.enter_async_context(flows)
                if not await refusal_to_list(self._client, EVENTS, namespace):
                    events = self._informer(EVENTS, namespace, field_selector=WARNINGS)
                    events.add_handler(self._on_event)
                    await stack.enter_async_context(events)
            for groups in await self._group_informers():
                groups.add_handler(self._on_group)
                await stack.enter_async_context(groups)
            yield

    def _scope(self, namespace: str) -> JobScope:
        """Return which jobs of a namespace are watched: a JobFlow creates more of them."""
        if self._flows:
            return JobScope(())
        followed = self._jobs.followed.values()
        return JobScope([job for job in followed if job["metadata"]["namespace"] == namespace])

    async def _group_informers(self) -> list[Informer[Object]]:
        """Watch all PodGroups, for the position in the queue; a user of some namespaces sees only
        those. Of one job on a large cluster, watch its own.
        """
        (first, *others) = sorted(self._namespaces)
        own = "" if others else self._scope(first).group_field
        if own and await self._has_many_groups():
            self._jobs.has_all_groups = False
            return [self._informer(PODGROUPS, first, field_selector=own)]
        if not await refusal_to_list(self._client, PODGROUPS, None):
            return [self._informer(PODGROUPS, None)]
        return [self._informer(PODGROUPS, namespace) for namespace in sorted(self._namespaces)]

    async def _has_many_groups(self) -> bool:
        with contextlib.suppress(KubeError):
            async for page in self._client.pages(PODGROUPS, page_size=MAX_GROUPS):
                return bool(page.continue_token)
        return False

    def _informer(
        self,
        resource: Resource[Object],
        namespace: str | None,
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> Informer[Object]:
        return Informer(
            self._client,
            resource,
            dict,
            namespace=namespace,
            on_problem=self._on_problem,
            label_selector=label_selector,
            field_selector=field_selector,
        )

    def _on_problem(self, problem: KubeError | None) -> None:
        """Say once, for all informers, that the server is away, and that it is back.

        The first informer that follows the server again says so: the slowest of them waits for
        seconds, in which a job may end.
        """
        if problem is None:
            self._problems -= 1
            if self._said_problem:
                self._said_problem = False
                self._screen.message("the server answers again")
            return
        self._problems += 1
        if self._problems == 1:
            self._said_problem = True
            is_away = isinstance(problem, TransportError)
            text = "the server does not answer" if is_away else f"{problem}"
            self._screen.message(f"{text}; waiting for it")

    def _on_job(self, _: str, old: Object | None, job: Object | None) -> None:
        seen = job or old
        assert seen is not None
        uid = seen["metadata"]["uid"]
        if uid not in self._submitted and not self._is_of_flow(seen):
            return
        if job is None:
            # Deleted by a user or by its TTL: no further events will come.
            self._submitted.discard(uid)
            self._deleted.add(uid)
            if self._jobs.phase(uid) not in TERMINAL_PHASES:
                self._jobs.followed[uid] = _with_phase(seen, JobPhase.TERMINATED)
                self._unfinished.add(uid)
                name = seen["metadata"]["name"]
                self._screen.message(f"job {name} was deleted by somebody before it had ended")
                self._screen.message(f"  next: {self._more(uid)}")
        else:
            self._jobs.followed[uid] = job
            self._jobs.reasons.add_owner(uid, uid)
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
            for owner in group["metadata"].get("ownerReferences") or ():
                if owner["uid"] in self._jobs.followed:
                    self._jobs.reasons.add_owner(group["metadata"]["uid"], owner["uid"])
        self._notify()

    def _on_event(self, _: str, __: Object | None, event: Object | None) -> None:
        if event is not None:
            self._jobs.reasons.on_event(event)
            self._notify()

    def _on_pod(self, _: str, old: Object | None, pod: Object | None) -> None:
        if pod is None:
            self._changed.set()
            if old is not None:
                self._jobs.reasons.on_pod_deleted(old)
            return
        owners = {owner["uid"] for owner in pod["metadata"].get("ownerReferences") or ()}
        if not owners & self._jobs.followed.keys():
            return
        for job in owners & self._jobs.followed.keys():
            self._jobs.reasons.on_pod(job, pod)
            if (pod.get("status") or {}).get("phase") == PodPhase.FAILED:
                failed = failed_containers(pod)
                self._failed.setdefault(job, {})[pod["metadata"]["name"]] = failed
                is_deleted = "deletionTimestamp" in pod["metadata"]
                codes = self._exit_codes_of_deleted if is_deleted else self._exit_codes
                codes |= {one.exit_code for one in failed if one.exit_code}
            elif index_of_pod(pod) is not None:
                # A retry of a failed index: the job may fail for others only.
                self._failed.get(job, {}).pop(pod["metadata"]["name"], None)
        self._readers.read_new_runs(pod)
        self._notify()

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
        self._screen.ended()

    async def _list_again(self) -> None:
        """List jobs and pods once more: watches of different kinds are not synchronized."""
        for namespace in sorted(self._namespaces):
            scope = self._scope(namespace)
            for job in await self._client.list(
                JOBS, namespace=namespace, field_selector=scope.job_field
            ):
                self._on_job("", None, job)
            pods = await self._client.list(
                PODS, namespace=namespace, label_selector=scope.pod_labels
            )
            for pod in pods:
                self._on_pod("", None, pod)
            await self._until_deletions_seen(namespace, {pod["metadata"]["uid"] for pod in pods})

    async def _until_deletions_seen(self, namespace: str, existing: set[str]) -> None:
        """Wait until the watch has passed the end of all deleted pods: they have output too."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_S):
                while any(
                    pod["metadata"]["uid"] not in existing for pod in self._pods[namespace].list()
                ):
                    self._changed.clear()
                    await self._changed.wait()

    def _is_finished(self) -> bool:
        if self._is_aborting:
            return all(self._jobs.phase(uid) in TERMINAL_PHASES for uid in self._jobs.followed)
        flows = (_flow_phase(flow) in TERMINAL_FLOW_PHASES for flow in self._flows.values())
        return all(flows) and all(
            self._jobs.phase(uid) in TERMINAL_PHASES for uid in self._submitted
        )

    def _all_completed(self) -> bool:
        flows = (_flow_phase(flow) == FlowPhase.SUCCEED for flow in self._flows.values())
        jobs = (self._jobs.phase(uid) == JobPhase.COMPLETED for uid in self._jobs.followed)
        return all(flows) and all(jobs)

    async def _report_failures(self) -> None:
        """Print exit codes, output that was not shown, and the commands for more."""
        for uid, job in self._jobs.followed.items():
            if self._jobs.phase(uid) == JobPhase.COMPLETED or uid in self._unfinished:
                continue
            failed = [one for pod in self._failed.get(uid, {}).values() for one in pod]
            failed.sort(key=by_index)
            for one in [one for one in failed if one.container][:TAILS]:
                # The output of an array is long: the last lines are shown again.
                if one.index is not None or (one.pod, one.container) not in self._shown:
                    await self._show_tail(one)
            for line in report(job, self._jobs.phase(uid), failed, self._more(uid)):
                self._screen.message(line)

    async def _show_tail(self, failed: FailedContainer) -> None:
        run = Run(failed.namespace, failed.pod, "", failed.container)
        has_heading = False
        with contextlib.suppress(KubeError):  # a pod that is deleted has no output
            async for line in run_lines(self._client, run, follow=False, tail_lines=TAIL_LINES):
                if not has_heading:
                    has_heading = True
                    self._screen.message(heading(failed))
                self._screen.output(f"{line.pod}/{line.container}", line.text)

    def _more(self, uid: str) -> str:
        if not self._can_detach:
            return "`hekla up -d` keeps a cluster, and with it jobs for `hekla explain`"
        if uid in self._deleted:
            return f"`{self._jobs.command('history', uid)}` shows its record"
        if self._jobs.phase(uid) == JobPhase.ABORTED:
            return f"`{self._jobs.command('job resume', uid)}` starts its pods again"
        verbs = ["explain", "job logs", "job retry"]
        return ", ".join(f"`{self._jobs.command(verb, uid)}`" for verb in verbs)

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
            choice = await interrupts.choice(
                self._screen, self._interrupted, can_detach=self._can_detach
            )
            if choice == "d":
                raise Detached
            if choice == "a":
                await self._abort()
                if not self._interrupted.is_unseen:
                    await self._until_aborted(finished)
                raise Aborted
        await finished

    async def _abort(self) -> None:
        for uid, job in self._jobs.followed.items():
            if self._jobs.phase(uid) not in TERMINAL_PHASES:
                await self._client.create(COMMANDS, job_commands.command(job, Action.ABORT_JOB))
                self._screen.message(f"job {job['metadata']['name']}: abort requested")
        for flow in self._flows.values():
            if _flow_phase(flow) not in TERMINAL_FLOW_PHASES:
                name, namespace = flow["metadata"]["name"], flow["metadata"]["namespace"]
                self._screen.message(
                    f"jobflow {name} is kept; `vcctl jobflow delete -N {name} -n {namespace}` "
                    "deletes it"
                )

    async def _until_aborted(self, finished: asyncio.Task[None]) -> None:
        """Wait until the jobs have ended, not their flows; another Ctrl-C stops waiting."""
        self._is_aborting = True
        self._interrupted.clear()  # the one that was the answer
        self._changed.set()
        interrupted = asyncio.create_task(self._interrupted.wait())
        await asyncio.wait((finished, interrupted), return_when=asyncio.FIRST_COMPLETED)
        interrupted.cancel()
        if finished.done():
            finished.result()


def is_followed(obj: Object) -> bool:
    """Return whether a run waits for this object."""
    return kind_of(obj) in (JOB, FLOW)


def _flow_phase(flow: Object) -> str:
    return str(((flow.get("status") or {}).get("state") or {}).get("phase") or "")


def _with_phase(job: Object, phase: str) -> Object:
    return {**job, "status": {**(job.get("status") or {}), "state": {"phase": phase}}}

"""Print why a job does not run, while a command waits for it.

    with ReasonWatch(config, job, program="hekla"):
        job_wait.wait(client, ...)

A thread watches the job, its pods, its PodGroup and its warnings. New reasons go to stderr, as
`hekla run` prints them: they are found by the same `progress.Jobs`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from types import TracebackType
from typing import Self

from hekla.cli import job_scope, terminal
from hekla.cli.progress import Jobs
from hekla.cli.rights import refusal_to_list
from hekla.kube.client import Client
from hekla.kube.errors import KubeError
from hekla.kube.informers import Informer
from hekla.kube.kubeconfig import ClusterConfig
from hekla.kube.resources import EVENTS, JOBS, PODGROUPS, PODS, Resource
from hekla.sdk import job_phases
from hekla.units.objects import Object

END_S = 2.0
"""How long the end of a command waits for the thread."""


class _Jobs(Jobs):
    """Jobs whose hints name the program that runs."""

    program = "hekla"

    def command(self, verb: str, uid: str) -> str:
        line = super().command(verb, uid)
        return line if self.program == "hekla" else line.replace("hekla", f"{self.program} job", 1)


class ReasonWatch:
    """Prints the reasons of one job from `with` on until its end."""

    def __init__(self, config: ClusterConfig, job: Object, *, program: str) -> None:
        self._config = config
        self._jobs = _Jobs(followed={job["metadata"]["uid"]: job})
        self._jobs.program = program
        self._uid: str = job["metadata"]["uid"]
        self._thread = threading.Thread(target=self._main, daemon=True, name="reasons")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = threading.Event()
        self._over = asyncio.Event()
        self._is_needed = not job_phases.is_finished(job)

    def __enter__(self) -> Self:
        if self._is_needed:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopped.set()
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has just ended
                self._loop.call_soon_threadsafe(self._over.set)
        if self._is_needed:
            self._thread.join(END_S)

    def _main(self) -> None:
        # The command itself reports what is wrong with the server.
        with contextlib.suppress(KubeError):
            asyncio.run(self._watch())

    async def _watch(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self._stopped.is_set():
            return
        async with (
            Client(self._config, component="vcctl") as client,
            contextlib.AsyncExitStack() as stack,
        ):
            job = self._jobs.followed[self._uid]
            namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
            scope = job_scope.JobScope([job])

            def informer(resource: Resource[Object], labels: str, fields: str) -> Informer[Object]:
                return Informer(
                    client,
                    resource,
                    dict,
                    namespace=namespace,
                    label_selector=labels,
                    field_selector=fields,
                    on_problem=lambda _: None,
                )

            wanted = [
                (JOBS, "", f"metadata.name={name}", self._on_job),
                (PODGROUPS, "", scope.group_field, self._on_group),
                (PODS, scope.pod_labels, "", self._on_pod),
                (EVENTS, "", job_scope.WARNINGS, self._on_event),
            ]
            for resource, labels, fields, handler in wanted:
                if await refusal_to_list(client, resource, namespace):
                    continue
                one = informer(resource, labels, fields)
                one.add_handler(handler)
                await stack.enter_async_context(one)
            await self._over.wait()

    def _on_job(self, _: str, __: Object | None, job: Object | None) -> None:
        if job is not None and job["metadata"]["uid"] == self._uid:
            self._jobs.followed[self._uid] = job
            self._jobs.reasons.add_owner(self._uid, self._uid)
            self._print()

    def _on_group(self, _: str, __: Object | None, group: Object | None) -> None:
        if group is not None:
            metadata = group["metadata"]
            self._jobs.groups[metadata["namespace"], metadata["name"]] = group
            self._jobs.reasons.add_owner(metadata["uid"], self._uid)
            self._print()

    def _on_pod(self, _: str, old: Object | None, pod: Object | None) -> None:
        if pod is None and old is not None:
            self._jobs.reasons.on_pod_deleted(old)
        elif pod is not None and any(
            owner["uid"] == self._uid for owner in pod["metadata"].get("ownerReferences") or ()
        ):
            self._jobs.reasons.on_pod(self._uid, pod)
            self._print()

    def _on_event(self, _: str, __: Object | None, event: Object | None) -> None:
        if event is not None:
            self._jobs.reasons.on_event(event)
            self._print()

    def _print(self) -> None:
        if not self._stopped.is_set():
            for line in self._jobs.new_reasons():
                terminal.echo(line, err=True)

"""Cluster state for validation rules, from informers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from hekla.api import wellknown
from hekla.api.volcano.jobs import MAX_REPLICAS
from hekla.api.volcano.plugins import job_plugin_names
from hekla.api.volcano.view import queue_of
from hekla.kube.client import Client
from hekla.kube.informers import Informer
from hekla.kube.resources import JOBS, NAMESPACES, PODGROUPS, QUEUES

Json = dict[str, Any]


class InformerView:
    """Queues and namespaces from watches. Entering it waits for the first list."""

    def __init__(
        self,
        client: Client,
        *,
        scheduler_names: tuple[str, ...] = (wellknown.DEFAULT_SCHEDULER,),
        job_plugins: frozenset[str] | None = None,
        max_pods_per_job: int = MAX_REPLICAS,
    ) -> None:
        self._client = client
        self._queues: Informer[Json] = Informer(client, QUEUES, dict)
        self._namespaces: Informer[Json] = Informer(client, NAMESPACES, dict)
        self._scheduler_names = scheduler_names
        self.max_pods_per_job = max_pods_per_job
        self._job_plugins = job_plugins or job_plugin_names()

    @property
    def scheduler_names(self) -> tuple[str, ...]:
        return self._scheduler_names

    @property
    def job_plugins(self) -> frozenset[str]:
        return self._job_plugins

    async def __aenter__(self) -> Self:
        await self._queues.__aenter__()
        await self._namespaces.__aenter__()
        await self._queues.synced()
        await self._namespaces.synced()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._namespaces.__aexit__(kind, error, trace)
        await self._queues.__aexit__(kind, error, trace)

    async def current(self, workloads_of: str | None = None) -> CurrentView:
        """Return a view with the queues that the server has now, and the workloads of one."""
        listed = await self._client.list(QUEUES)
        queues = {each["metadata"]["name"]: each for each in listed.items}
        workloads = [] if workloads_of is None else await self._workloads(workloads_of)
        return CurrentView(self, queues, workloads)

    async def _workloads(self, queue: str) -> list[Json]:
        """List the Jobs and PodGroups of a queue page by page.

        Only the deletion of a queue needs them: an informer would hold all of them in memory.
        """
        found: list[Json] = []
        for resource in (JOBS, PODGROUPS):
            async for page in self._client.pages(resource):
                found += (
                    {**each, "kind": resource.kind}
                    for each in page.items
                    if queue_of(each) == queue
                )
        return found

    def queue(self, name: str) -> Json | None:
        return self._queues.get("", name)

    def queues(self) -> Iterable[Json]:
        return self._queues.list()

    def namespace(self, name: str) -> Json | None:
        return self._namespaces.get("", name)

    def workloads(self, queue: str) -> Iterable[Json]:
        """Return none: they are listed for `current` when a queue is deleted."""
        return ()


@dataclass(frozen=True, slots=True)
class CurrentView:
    """The queues and workloads of list requests; everything else is the informers'."""

    informers: InformerView
    by_name: dict[str, Json]
    listed_workloads: Sequence[Json] = ()

    @property
    def scheduler_names(self) -> tuple[str, ...]:
        return self.informers.scheduler_names

    @property
    def job_plugins(self) -> frozenset[str]:
        return self.informers.job_plugins

    @property
    def max_pods_per_job(self) -> int:
        return self.informers.max_pods_per_job

    def queue(self, name: str) -> Json | None:
        return self.by_name.get(name)

    def queues(self) -> Iterable[Json]:
        return self.by_name.values()

    def namespace(self, name: str) -> Json | None:
        return self.informers.namespace(name)

    def workloads(self, queue: str) -> Iterable[Json]:
        return self.listed_workloads

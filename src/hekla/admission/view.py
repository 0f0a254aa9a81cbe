"""Cluster state for validation rules, from informers."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from hekla.api import wellknown
from hekla.api.volcano.plugins import job_plugin_names
from hekla.kube.client import Client
from hekla.kube.informers import Informer
from hekla.kube.resources import NAMESPACES, QUEUES

Json = dict[str, Any]


class InformerView:
    """Queues and namespaces from watches. Entering it waits for the first list."""

    def __init__(
        self,
        client: Client,
        *,
        scheduler_names: tuple[str, ...] = (wellknown.DEFAULT_SCHEDULER,),
        job_plugins: frozenset[str] | None = None,
    ) -> None:
        self._queues: Informer[Json] = Informer(client, QUEUES, dict)
        self._namespaces: Informer[Json] = Informer(client, NAMESPACES, dict)
        self._scheduler_names = scheduler_names
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

    def queue(self, name: str) -> Json | None:
        return self._queues.get("", name)

    def queues(self) -> Iterable[Json]:
        return self._queues.list()

    def namespace(self, name: str) -> Json | None:
        return self._namespaces.get("", name)

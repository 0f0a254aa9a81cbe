"""Validation of an object before it is sent, by the rules of the server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy

from hekla.api import volcano, wellknown
from hekla.api.rules.fields import FieldError
from hekla.api.volcano.jobs import MAX_REPLICAS
from hekla.api.volcano.plugins import job_plugin_names
from hekla.api.volcano.view import queue_of
from hekla.kube.errors import KubeError
from hekla.kube.resources import JOBS, NAMESPACES, PODGROUPS, QUEUES
from hekla.kube.sync_client import SyncClient
from hekla.units.objects import Object


class ClusterView:
    """The cluster state that validation rules read, fetched on demand."""

    job_plugins = job_plugin_names()
    max_pods_per_job = MAX_REPLICAS
    """The server may have a lower limit, and refuses then."""

    def __init__(self, client: SyncClient, scheduler: str = wellknown.DEFAULT_SCHEDULER) -> None:
        self._client = client
        self._queues: list[Object] | None = None
        self.scheduler_names: tuple[str, ...] = (scheduler,)

    def queues(self) -> Iterable[Object]:
        if self._queues is None:
            self._queues = list(self._client.list(QUEUES))
        return self._queues

    def queue(self, name: str) -> Object | None:
        return next((q for q in self.queues() if q["metadata"]["name"] == name), None)

    def namespace(self, name: str) -> Object | None:
        return self._client.find(NAMESPACES, name)

    def workloads(self, queue: str) -> Iterator[Object]:
        for resource in (JOBS, PODGROUPS):
            for each in self._client.list(resource):
                if queue_of(each) == queue:
                    yield {**each, "kind": resource.kind}


def errors(obj: Object, view: volcano.View) -> list[FieldError]:
    """Return the errors of the rules for a new object; the object is not changed."""
    draft = deepcopy(obj)
    draft.setdefault("metadata", {})
    draft.setdefault("spec", {})
    try:
        volcano.default(draft, view)
        return list(volcano.check("create", draft, None, view))
    except (KubeError, TypeError, ValueError, KeyError, AttributeError):
        # Missing permission (to read queues), or a shape that only the schema describes: the server
        # reports both better.
        return []

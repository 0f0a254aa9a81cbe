"""The cluster state that admission rules read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from hekla.api import wellknown
from hekla.units.objects import Object


class View(Protocol):
    """Cluster state for rules: the embedded server reads its store, a webhook its informers, the
    command line the API.
    """

    def queue(self, name: str) -> Object | None: ...

    def queues(self) -> Iterable[Object]: ...

    def namespace(self, name: str) -> Object | None: ...

    def workloads(self, queue: str) -> Iterable[Object]:
        """Return the Jobs and PodGroups of a queue; only its deletion asks for them."""

    @property
    def max_pods_per_job(self) -> int:
        """The most pods that a Job may have, its tasks together."""

    @property
    def job_plugins(self) -> frozenset[str]: ...

    @property
    def scheduler_names(self) -> tuple[str, ...]:
        """The names of hekla's schedulers; the first is the default."""


def state_of(queue: Object) -> str:
    return str((queue.get("status") or {}).get("state") or "")


def parent_of(queue: Object) -> str:
    return str((queue.get("spec") or {}).get("parent") or "")


def queue_of(workload: Object) -> str:
    """Return the queue of a Job or PodGroup."""
    return str((workload.get("spec") or {}).get("queue") or wellknown.DEFAULT_QUEUE)


def children_of(name: str, view: View) -> list[Object]:
    """Return the child queues of a queue."""
    return [q for q in view.queues() if parent_of(q) == name and q["metadata"]["name"] != name]

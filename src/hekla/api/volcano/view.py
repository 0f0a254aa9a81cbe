"""What rules need to know of the rest of the cluster, and nothing more."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

Json = dict[str, Any]


class View(Protocol):
    """The cluster as a rule sees it: the embedded server answers from its store, a webhook from
    its informers, the command line from the API."""

    def queue(self, name: str) -> Json | None: ...

    def queues(self) -> Iterable[Json]: ...

    def namespace(self, name: str) -> Json | None: ...

    @property
    def job_plugins(self) -> frozenset[str]: ...

    @property
    def scheduler_names(self) -> tuple[str, ...]:
        """The names of hekla's schedulers; the first is the default."""


def state_of(queue: Json) -> str:
    return str((queue.get("status") or {}).get("state") or "")


def parent_of(queue: Json) -> str:
    return str((queue.get("spec") or {}).get("parent") or "")


def children_of(name: str, view: View) -> list[Json]:
    """The queues directly below one."""
    return [q for q in view.queues() if parent_of(q) == name and q["metadata"]["name"] != name]

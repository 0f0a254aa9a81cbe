"""The queues below and above a queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hekla.api.wellknown import ROOT_QUEUE
from hekla.scheduler.state.model import Queue


def descendants(name: str, queues: Mapping[str, Queue]) -> list[str]:
    """Return a queue and all its descendants, each once, even if parents form a cycle."""
    if name == ROOT_QUEUE:
        return list(queues)
    found, fresh = {name: None}, [name]
    while fresh:
        parent = fresh.pop()
        for queue in queues.values():
            if queue.parent == parent and queue.name not in found:
                found[queue.name] = None
                fresh.append(queue.name)
    return list(found)


def lineage(queue: Queue | None, queues: Mapping[str, Queue]) -> Iterator[Queue]:
    """Yield a queue and those above it, each once, even if parents form a cycle."""
    seen: set[str] = set()
    while queue is not None and queue.name not in seen:
        seen.add(queue.name)
        yield queue
        queue = queues.get(queue.parent)

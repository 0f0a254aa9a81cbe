"""The queues below a queue."""

from __future__ import annotations

from collections.abc import Mapping

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

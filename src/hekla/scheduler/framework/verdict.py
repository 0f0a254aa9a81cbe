"""The verdict: why a job is pending. All texts about it are made from this one typed object.

Texts are stable: equal states give equal words, without times and without dictionary order. So a
condition or event made from a verdict changes only when the reason does, and is written once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from hekla.scheduler.state.dimensions import show_amount

_UID: Final = re.compile(r"(?<!/podgroup)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


def shown_job(key: str) -> str:
    """Return the name of a job for people: the PodGroup of a Job ends with the Job's UID.

    That of a bare pod has nothing else to name it, and keeps the UID.
    """
    return _UID.sub("", key)


class Gate(StrEnum):
    """How far a job came before it was stopped."""

    INVALID_REQUESTS = "InvalidRequests"  # the pods request what no node can have
    GROUP_MISSING = "PodGroupMissing"  # pods name a PodGroup that does not exist
    QUEUE_MISSING = "QueueMissing"
    QUEUE_CLOSED = "QueueClosed"
    NOT_ENOUGH_TASKS = "NotEnoughTasks"
    NOT_ENQUEUED = "NotEnqueued"
    QUEUE_SHARE = "QueueShare"  # its queue uses its share, or is at its limit
    GATED = "Gated"
    BACKED_OFF = "BackedOff"
    NODE_FILTERS = "NodeFilters"  # no node is feasible
    GANG_SHORT = "GangShort"  # nodes are feasible, but not for enough members
    TOPOLOGY = "NetworkTopology"  # the gang fits in no network domain that is close enough
    SURPLUS = "Surplus"  # the gang runs; members beyond its minimum do not fit
    PIPELINED = "Pipelined"  # placed on releasing resources
    VICTIMS = "WaitingForVictims"  # pods were evicted for it and have not terminated
    ORDERING = "Ordering"  # other jobs come first


@dataclass(frozen=True, slots=True)
class Blocked:
    """The resource that stops a job: `used` and `asked` together exceed `allowed`."""

    resource: str
    asked: float
    allowed: float
    used: float
    basis: str = ""
    """What `allowed` is, such as the capability of a queue."""

    def __str__(self) -> str:
        asked, allowed, used = (
            show_amount(self.resource, amount) for amount in (self.asked, self.allowed, self.used)
        )
        basis = f" ({self.basis})" if self.basis else ""
        return f"{self.resource}: asked {asked}, used {used} of {allowed}{basis}"


@dataclass(frozen=True, slots=True)
class Holder:
    """Another job that holds the resource that a job needs."""

    job: str
    resource: str
    amount: float

    def __str__(self) -> str:
        return f"{shown_job(self.job)} ({show_amount(self.resource, self.amount)} {self.resource})"


@dataclass(frozen=True, slots=True)
class Verdict:
    job: str
    gate: Gate
    message: str
    blocked: tuple[Blocked, ...] = ()
    nodes: Mapping[str, int] = field(default_factory=dict)
    """The number of infeasible nodes by reason. A node counts for every resource that it lacks."""
    total_nodes: int = 0
    free_nodes: int = 0
    """The number of nodes that take the task."""
    task: str = ""
    """The task that `nodes` is about: the first that found no node."""
    fitting: int = 0
    needed: int = 0
    change: str = ""
    """The smallest change after which the job is scheduled."""
    holders: tuple[Holder, ...] = ()
    notes: tuple[str, ...] = ()
    """Remarks that do not stop the job, such as settings without effect."""

    @property
    def histogram(self) -> str:
        """`0/5 nodes are available: 3 Insufficient cpu, 2 node(s) …`, as kube-scheduler has it."""
        if not self.nodes:
            return ""
        parts = sorted(f"{count} {reason}" for reason, count in self.nodes.items())
        return f"{self.free_nodes}/{self.total_nodes} nodes are available: {', '.join(parts)}."

    def __str__(self) -> str:
        parts = [self.message]
        if self.blocked:
            parts.append("; ".join(map(str, self.blocked)))
        if self.histogram:
            parts.append(self.histogram.rstrip("."))
        if self.holders:
            parts.append("held by " + ", ".join(map(str, self.holders)))
        if self.change:
            parts.append(f"what helps: {self.change}")
        parts += [f"note: {note}" for note in self.notes]
        return "; ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, for command line and dashboard."""
        return {
            "job": self.job,
            "gate": str(self.gate),
            "message": self.message,
            "text": str(self),
            "blocked": [
                {
                    "resource": b.resource,
                    "asked": show_amount(b.resource, b.asked),
                    "allowed": show_amount(b.resource, b.allowed),
                    "used": show_amount(b.resource, b.used),
                    "basis": b.basis,
                }
                for b in self.blocked
            ],
            "nodes": dict(sorted(self.nodes.items())),
            "totalNodes": self.total_nodes,
            "task": self.task,
            "fitting": self.fitting,
            "needed": self.needed,
            "change": self.change,
            "notes": list(self.notes),
            "heldBy": [
                {"job": h.job, "resource": h.resource, "amount": show_amount(h.resource, h.amount)}
                for h in self.holders
            ],
        }

"""Why a job waits: one typed verdict, from which every text about it is made.

Texts are stable: same state, same words, no times and no order of dictionaries in them. So a
condition or event built from a verdict changes only when the reason does, and is not written anew
in every cycle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hekla.scheduler.state.dimensions import show_amount


class Gate(StrEnum):
    """How far the job came before it was stopped."""

    NONSENSE = "Nonsense"  # the objects ask for something that cannot be
    GROUP_MISSING = "PodGroupMissing"  # pods name a PodGroup that does not exist
    QUEUE_MISSING = "QueueMissing"
    QUEUE_CLOSED = "QueueClosed"
    NOT_ENOUGH_TASKS = "NotEnoughTasks"
    NOT_ENQUEUED = "NotEnqueued"
    QUEUE_SHARE = "QueueShare"  # its queue has had its share, or its limit
    GATED = "Gated"
    BACKED_OFF = "BackedOff"
    NODE_FILTERS = "NodeFilters"  # no node will do, full or not
    GANG_SHORT = "GangShort"  # nodes will do, but not for enough members
    TOPOLOGY = "NetworkTopology"  # no part of the network that is close enough has room for all
    SURPLUS = "Surplus"  # the gang runs; members beyond its minimum wait for room
    PIPELINED = "Pipelined"  # waits for room that is being released
    VICTIMS = "WaitingForVictims"  # pods were told to leave for it, and have not left yet
    ORDERING = "Ordering"  # others go first


@dataclass(frozen=True, slots=True)
class Blocked:
    """The resource it is about; `used` and `asked` together would pass `allowed`."""

    resource: str
    asked: float
    allowed: float
    used: float

    def __str__(self) -> str:
        asked, allowed, used = (
            show_amount(self.resource, amount) for amount in (self.asked, self.allowed, self.used)
        )
        return f"{self.resource}: asked {asked}, used {used} of {allowed}"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has what the job waits for."""

    job: str
    resource: str
    amount: float

    def __str__(self) -> str:
        return f"{self.job} ({show_amount(self.resource, self.amount)} {self.resource})"


@dataclass(frozen=True, slots=True)
class Verdict:
    job: str
    gate: Gate
    message: str
    blocked: tuple[Blocked, ...] = ()
    nodes: Mapping[str, int] = field(default_factory=dict)
    """Nodes by the reason that ruled them out; the counts add up to those that were."""
    total_nodes: int = 0
    task: str = ""
    """The task that `nodes` is about: the first that found no place."""
    fitting: int = 0
    needed: int = 0
    change: str = ""
    """The smallest change that would let it in."""
    holders: tuple[Holder, ...] = ()
    notes: tuple[str, ...] = ()
    """What is odd about the objects, though it does not stop the job."""

    @property
    def histogram(self) -> str:
        """`0/5 nodes are available: 3 Insufficient cpu, 2 node(s) …`, as kubectl users know it."""
        if not self.nodes:
            return ""
        free = self.total_nodes - sum(self.nodes.values())
        parts = sorted(f"{count} {reason}" for reason, count in self.nodes.items())
        return f"{free}/{self.total_nodes} nodes are available: {', '.join(parts)}."

    def __str__(self) -> str:
        parts = [self.message]
        if self.blocked:
            parts.append("; ".join(map(str, self.blocked)))
        if self.histogram:
            parts.append(self.histogram.rstrip("."))
        if self.holders:
            parts.append("held by " + ", ".join(map(str, self.holders)))
        if self.change:
            parts.append(f"would be let in by: {self.change}")
        parts += [f"note: {note}" for note in self.notes]
        return "; ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, for command line and dashboard."""
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

"""The plan of a cycle: effects as data, which the service performs.

Effects are in the order of decision, which depends on the state alone. The binds of one gang are
consecutive and carry its name, so that the performer can drop a gang as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from hekla.scheduler.framework.verdict import Verdict
from hekla.scheduler.state.dimensions import FloatArray

PREEMPTING: Final = "Preempting"
"""Reason of the Event that names the victims of a PodGroup."""


@dataclass(frozen=True, slots=True)
class PluginFailure:
    """A hook of a plugin raised or took too long; the plugin was left out for the cycle."""

    plugin: str
    hook: str
    error: str
    traceback: str = ""
    """The frames of the plugin, the innermost last."""


@dataclass(frozen=True, slots=True)
class Bind:
    namespace: str
    pod: str
    uid: str
    node: str
    job: str
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Written to the pod in the same request: its devices and CPUs."""


@dataclass(frozen=True, slots=True)
class Evict:
    namespace: str
    pod: str
    uid: str
    node: str
    reason: str
    job: str
    preemptor: str = ""
    """What the pod is evicted for, as text; empty without a preemptor."""


@dataclass(frozen=True, slots=True)
class OpenGate:
    """Remove the queue-allocation gate of a pod: its queue allows it."""

    namespace: str
    pod: str
    uid: str


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a PodGroup; its times are set when it is written."""

    type: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class SetGroupStatus:
    """The phase, counts, conditions and domain of a PodGroup, written if they differ."""

    namespace: str
    group: str
    uid: str
    phase: str
    running: int
    succeeded: int
    failed: int
    conditions: tuple[Condition, ...] = ()
    domain: str | None = None
    """The HyperNode that contains its members, empty for none; None if it did not change."""


@dataclass(frozen=True, slots=True)
class SetPodCondition:
    """The condition PodScheduled=False of a pending pod, with the reason."""

    namespace: str
    pod: str
    uid: str
    reason: str
    message: str
    nominated_node: str = ""


@dataclass(frozen=True, slots=True)
class SetQueueStatus:
    queue: str
    allocated: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Event:
    """A Kubernetes Event about a pod or a PodGroup."""

    kind: Literal["Pod", "PodGroup"]
    namespace: str
    name: str
    uid: str
    type: Literal["Normal", "Warning"]
    reason: str
    message: str


Effect: TypeAlias = (
    Bind | Evict | OpenGate | SetGroupStatus | SetPodCondition | SetQueueStatus | Event
)


@dataclass(frozen=True, slots=True)
class QueueMetrics:
    """What a plugin computed for a queue, for metrics."""

    deserved_r: FloatArray
    limit_r: FloatArray
    """Infinite for no limit."""
    share: float
    is_overused: bool


@dataclass(slots=True)
class Plan:
    effects: list[Effect] = field(default_factory=list)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    """The verdict of each job that is not fully placed, by job key."""
    pipelined: dict[str, str] = field(default_factory=dict)
    """Pipelined tasks by uid, with their nodes. They are not bound yet."""
    failures: list[PluginFailure] = field(default_factory=list)
    considered: int = 0
    wake_at: float | None = None
    """When to run a cycle though nothing changed: a window closes, a deadline passes."""
    rescheduled_at: float | None = None
    """When overloaded nodes were rebalanced, if they were."""
    queues: dict[str, QueueMetrics] = field(default_factory=dict)
    """Queue metrics by name."""
    timings_s: dict[tuple[str, str], float] = field(default_factory=dict)
    """Durations of parts of the cycle, by kind (session, action, open, close) and name."""

    @property
    def binds(self) -> list[Bind]:
        return [effect for effect in self.effects if isinstance(effect, Bind)]

    @property
    def evictions(self) -> list[Evict]:
        return [effect for effect in self.effects if isinstance(effect, Evict)]

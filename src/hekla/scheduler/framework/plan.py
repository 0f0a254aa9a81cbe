"""What a cycle decided, as data. Nothing here has happened yet.

Effects are in the order in which they were decided, and that order depends on the state alone. The
binds of one gang stand together and carry its name: whoever performs them can drop a gang whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from hekla.scheduler.framework.verdict import Verdict
from hekla.scheduler.state.dimensions import FloatArray


@dataclass(frozen=True, slots=True)
class PluginFailure:
    """A hook of a plugin raised or took too long; the plugin was left out for the cycle."""

    plugin: str
    hook: str
    error: str


@dataclass(frozen=True, slots=True)
class Bind:
    namespace: str
    pod: str
    uid: str
    node: str
    job: str
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Written on the pod in the same request: which cards and CPUs it was given."""


@dataclass(frozen=True, slots=True)
class Evict:
    namespace: str
    pod: str
    uid: str
    node: str
    reason: str
    job: str


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a PodGroup, without its times: those are set when it is written."""

    type: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class SetGroupStatus:
    """The phase, counts, conditions and place that a PodGroup should have, sent if they differ."""

    namespace: str
    group: str
    uid: str
    phase: str
    running: int
    succeeded: int
    failed: int
    conditions: tuple[Condition, ...] = ()
    domain: str | None = None
    """The HyperNode around its members, empty if there is none; None if that is no news."""


@dataclass(frozen=True, slots=True)
class SetPodCondition:
    """PodScheduled=False on a pod that waits, with the reason why."""

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


Effect: TypeAlias = Bind | Evict | SetGroupStatus | SetPodCondition | SetQueueStatus | Event


@dataclass(frozen=True, slots=True)
class QueueMetrics:
    """What a plugin worked out for a queue, for metrics."""

    deserved_r: FloatArray
    limit_r: FloatArray
    """Infinite where there is no limit."""
    share: float
    is_overused: bool


@dataclass(slots=True)
class Plan:
    effects: list[Effect] = field(default_factory=list)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    """Why each job that is not fully placed is not, by job key."""
    pipelined: dict[str, str] = field(default_factory=dict)
    """Tasks that hold room which is being released, and the node: nothing is done for them."""
    failures: list[PluginFailure] = field(default_factory=list)
    considered: int = 0
    wake_at: float | None = None
    """When to decide again though nothing has changed: a window closes, a deadline passes."""
    rescheduled_at: float | None = None
    """When nodes that are too busy were looked at, if they were."""
    queues: dict[str, QueueMetrics] = field(default_factory=dict)
    """By name, where a plugin shares resources between queues."""
    timings_s: dict[tuple[str, str], float] = field(default_factory=dict)
    """How long parts of the cycle took, by kind (session, action, open, close) and name."""

    @property
    def binds(self) -> list[Bind]:
        return [effect for effect in self.effects if isinstance(effect, Bind)]

    @property
    def evictions(self) -> list[Evict]:
        return [effect for effect in self.effects if isinstance(effect, Evict)]

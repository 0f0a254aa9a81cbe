"""Types that hooks return: votes, refusals and scores with a rule for combining them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from hekla.scheduler.state.dimensions import FloatArray, IntArray

if TYPE_CHECKING:
    from hekla.scheduler.state.model import Job, Task


class Vote:
    """The answer of a voting hook; None abstains.

    >>> def job_enqueueable(self, job):
    ...     return PERMIT if job.priority > 0 else None
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


PERMIT: Final = Vote("PERMIT")
REJECT: Final = Vote("REJECT")


@dataclass(frozen=True, slots=True)
class Invalid:
    """Why a job cannot be scheduled.

    >>> Invalid("NotEnoughPods", "the job has 1 of 2 pods").reason
    'NotEnoughPods'
    """

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class EvictionContext:
    """The job that gangs are evicted for, and the action."""

    kind: Literal["preempt", "reclaim"]
    job: Job


@dataclass(frozen=True, slots=True)
class Normalized:
    """A score that is normalized over the candidates to 0..100 × weight.

    `reverse` gives 100 to the smallest value, as for penalties.

        >>> import numpy as np
        >>> Normalized(np.array([1.0, 4.0]), weight=2.0).raw(np.array([1]), np.array([0]))
        array([4.])
    """

    raw_n: FloatArray
    weight: float
    reverse: bool = False
    between: bool = False
    """Scale from the smallest to the largest value, rather than from zero to the largest."""
    filling: Callable[[IntArray, IntArray], FloatArray] | None = None
    """For a score that changes as nodes fill: a function from nodes and the number of tasks added
    to each to raw scores. Then `raw_n` is not read."""

    def raw(self, nodes: IntArray, added: IntArray) -> FloatArray:
        """Return the raw scores of nodes with tasks added."""
        return self.raw_n[nodes] if self.filling is None else self.filling(nodes, added)


class SequentialScore:
    """A score that depends on where the tasks before were placed.

    It is made for equal tasks of one role and updated by `placed` after each. It must equal a score
    that is computed from scratch after each placement. It is not valid after any other change. A
    plugin that returns one implements `job_specific` for the same tasks.

        >>> class Alternate(SequentialScore):
        ...     def score(self, task):
        ...         return self.score_n
        ...     def placed(self, task, node):
        ...         self.score_n[node] -= 1.0
    """

    def score(self, task: Task) -> FloatArray:
        """Return the score of every node for the next task. The caller does not change it."""
        raise NotImplementedError

    def placed(self, task: Task, node: int) -> None:
        """Update the score: the task was placed on this node."""
        raise NotImplementedError

    def likely_nodes(self) -> Sequence[int]:
        """Return nodes that are likely to be chosen again; a hint for batches of scores."""
        return ()

"""The job state machine: one table, and the rules that move a job on its own.

A *state* meets an *action* (of a policy, a command, or plain SyncJob) and yields a `Step`: what is
done to the pods, and where the phase goes. Everything here is pure and knows no API objects.

What a newcomer gets wrong: a restart is two moves. The action moves the job to Restarting and
records that in its status; the pods go because of that record; and rule X moves it on to Pending
when enough of them are gone. So a controller that dies in between finds its intent in the status.

Where we differ from Volcano on purpose:
- `maxRetry` is exact: that many restarts run, and the next request fails the job at once, keeping
  its finished pods. Volcano counts first and compares after, which loses one; 0 means none here.
- A resume is no retry: whoever suspends a job with maxRetry 0 can resume it.
- Pods are made in Pending and Running only, so a restarting job never fights its own kill.
- Aborting, terminating or completing a job that is just restarting works; Volcano forgets the wish.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from hekla.api.wellknown import Action, JobPhase, PodPhase


class Primitive(Enum):
    """What is done to a job's pods."""

    SYNC = "create missing pods, delete surplus ones"
    KILL_SOFT = "delete all pods but the finished"
    KILL_ALL = "delete all pods"
    KILL_TARGET = "delete the pods of a task, a partition, or one"
    NOTHING = "only the phase rule"


@dataclass(frozen=True, slots=True)
class Counts:
    """A job's pods as they exist; those being deleted count only as terminating."""

    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    terminating: int = 0
    unknown: int = 0
    by_task: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def of(self, task: str, phase: str) -> int:
        return self.by_task.get(task, {}).get(phase, 0)


@dataclass(frozen=True, slots=True)
class Facts:
    """What the rules need to know of a job's spec and record."""

    replicas: int
    min_available: int
    tasks: tuple[tuple[str, int, int | None], ...] = ()
    """Name, replicas and minAvailable of each task."""
    min_success: int | None = None
    max_retry: int = 3
    retry_count: int = 0

    @property
    def retries_are_spent(self) -> bool:
        return self.retry_count >= self.max_retry


Rule = Callable[[Facts, Counts], str | None]
"""The phase that follows from what exists, or None to stay."""


def rule_pending(facts: Facts, counts: Counts) -> str | None:
    started = counts.running + counts.succeeded + counts.failed
    return JobPhase.RUNNING if facts.min_available <= started else None


def rule_running(facts: Facts, counts: Counts) -> str | None:
    """Rule R: how a running job ends, or falls back to Pending."""
    if facts.replicas == 0:
        return None
    wanted = facts.min_success
    if wanted is not None and counts.succeeded >= wanted:
        return JobPhase.COMPLETED
    if counts.succeeded + counts.failed == facts.replicas:
        if _a_task_fell_short(facts, counts):
            return JobPhase.FAILED
        if wanted is not None and counts.succeeded < wanted:
            return JobPhase.FAILED
        is_enough = counts.succeeded >= facts.min_available
        return JobPhase.COMPLETED if is_enough else JobPhase.FAILED
    if counts.pending > facts.replicas - facts.min_available:
        return JobPhase.PENDING
    return None


def _a_task_fell_short(facts: Facts, counts: Counts) -> bool:
    """Only a job whose own minimum covers its tasks' holds each task to its minimum."""
    together = sum(replicas if least is None else least for _, replicas, least in facts.tasks)
    if facts.min_available < together:
        return False
    return any(
        least is not None and task in counts.by_task and counts.of(task, PodPhase.SUCCEEDED) < least
        for task, _, least in facts.tasks
    )


def rule_restarting(facts: Facts, counts: Counts) -> str | None:
    """Rule X. More retries than allowed are only found on jobs that another system brought here."""
    if facts.retry_count > facts.max_retry:
        return JobPhase.FAILED
    enough_are_free = facts.replicas - counts.terminating >= facts.min_available
    return JobPhase.PENDING if enough_are_free else None


def _when_stopped(phase: str) -> Rule:
    """Rules A, C and T: nothing runs or leaves any more."""

    def rule(facts: Facts, counts: Counts) -> str | None:
        return None if counts.terminating or counts.pending or counts.running else phase

    return rule


rule_aborting = _when_stopped(JobPhase.ABORTED)
rule_completing = _when_stopped(JobPhase.COMPLETED)
rule_terminating = _when_stopped(JobPhase.TERMINATED)


@dataclass(frozen=True, slots=True)
class Step:
    """What an action does to a job in some state."""

    primitive: Primitive
    to: str | None = None
    """The phase that is entered at once."""
    rule: Rule | None = None
    """Otherwise: what may move the phase."""
    is_retry: bool = False
    """Counts against maxRetry; with none left the job fails instead."""


_RESTART_JOB: Final = Step(Primitive.KILL_ALL, to=JobPhase.RESTARTING, is_retry=True)
_RESTART_PART: Final = Step(Primitive.KILL_TARGET, to=JobPhase.RESTARTING, is_retry=True)
_RESUME: Final = Step(Primitive.KILL_SOFT, to=JobPhase.RESTARTING)
_OUT_OF_RETRIES: Final = Step(Primitive.KILL_SOFT, to=JobPhase.FAILED)

TARGETED: Final = (Action.RESTART_TASK, Action.RESTART_POD, Action.RESTART_PARTITION)
_OTHER: Final = "anything else"


_STOP: Final[Mapping[str, Step]] = {
    Action.ABORT_JOB: Step(Primitive.KILL_SOFT, to=JobPhase.ABORTING),
    Action.TERMINATE_JOB: Step(Primitive.KILL_SOFT, to=JobPhase.TERMINATING),
    Action.COMPLETE_JOB: Step(Primitive.KILL_SOFT, to=JobPhase.COMPLETING),
}


def _alive(rule: Rule) -> Mapping[str, Step]:
    return {
        Action.RESTART_JOB: _RESTART_JOB,
        **dict.fromkeys(TARGETED, _RESTART_PART),
        **_STOP,
        _OTHER: Step(Primitive.SYNC, rule=rule),
    }


_STAY_STOPPED: Final = Step(Primitive.KILL_SOFT)

TABLE: Final[Mapping[str, Mapping[str, Step]]] = {
    JobPhase.PENDING: _alive(rule_pending),
    JobPhase.RUNNING: _alive(rule_running),
    JobPhase.RESTARTING: {
        Action.RESTART_JOB: Step(Primitive.KILL_ALL, rule=rule_restarting),
        **dict.fromkeys(TARGETED, Step(Primitive.KILL_TARGET, rule=rule_restarting)),
        **_STOP,
        # Pods are made once the job is Pending again; until then a sync is the rule alone.
        _OTHER: Step(Primitive.NOTHING, rule=rule_restarting),
    },
    JobPhase.ABORTING: {
        Action.RESUME_JOB: _RESUME,
        **dict.fromkeys(_STOP, Step(Primitive.NOTHING, rule=rule_aborting)),
        _OTHER: Step(Primitive.KILL_SOFT, rule=rule_aborting),
    },
    JobPhase.ABORTED: {
        Action.RESUME_JOB: _RESUME,
        **dict.fromkeys((*TARGETED, *_STOP), Step(Primitive.NOTHING)),
        _OTHER: _STAY_STOPPED,
    },
    JobPhase.COMPLETING: {_OTHER: Step(Primitive.KILL_SOFT, rule=rule_completing)},
    JobPhase.TERMINATING: {_OTHER: Step(Primitive.KILL_SOFT, rule=rule_terminating)},
    JobPhase.COMPLETED: {_OTHER: _STAY_STOPPED},
    JobPhase.FAILED: {_OTHER: _STAY_STOPPED},
    JobPhase.TERMINATED: {_OTHER: _STAY_STOPPED},
}

PHASES: Final = tuple(TABLE)


def step_for(phase: str, action: str, facts: Facts) -> Step:
    """What `action` does to a job in `phase`; an unheard-of phase counts as Pending."""
    row = TABLE.get(phase, TABLE[JobPhase.PENDING])
    step = row.get(action, row[_OTHER])
    if step.is_retry and facts.retries_are_spent:
        return _OUT_OF_RETRIES
    return step

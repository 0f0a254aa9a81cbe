"""The job state machine: a table of transitions, and the rules that change the phase by themselves.

A phase and an action (of a policy, a command, or plain SyncJob) yield a `Transition`: the operation
on the pods, and the next phase. This module is pure and has no API objects.

Note: a restart is two transitions. The action sets the phase to Restarting and records it in the
status; the pods are deleted because of that record; rule X sets the phase to Pending when enough of
them are gone. So a controller that restarts in between finds the intent in the status.

Deliberate differences from Volcano:
- `maxRetry` is exact: that many restarts run, and the next request fails the job at once, keeping
  its finished pods. Volcano counts first and compares after, which loses one; 0 means none here.
- A resume is no retry: a suspended job with maxRetry 0 can be resumed.
- Pods are created only in Pending and Running, so a restarting job does not create what it deletes.
- A restarting job can be aborted, terminated or completed; Volcano drops the command.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from hekla.api.wellknown import Action, JobPhase, PodPhase


class PodOperation(Enum):
    """An operation on a job's pods."""

    SYNC = "create missing pods, delete surplus ones"
    KILL_SOFT = "delete all unfinished pods"
    KILL_ALL = "delete all pods"
    KILL_TARGET = "delete the pods of a task or partition, or one pod"
    NOTHING = "only the phase rule"


@dataclass(frozen=True, slots=True)
class Counts:
    """The pods of a job by phase; pods that are being deleted count only as terminating."""

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
    """The part of a job's spec and status that the rules need."""

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
"""Returns the next phase, or None to stay."""


def rule_pending(facts: Facts, counts: Counts) -> str | None:
    """Rule P: a pending job runs when its minimum has started."""
    started = counts.running + counts.succeeded + counts.failed
    return JobPhase.RUNNING if facts.min_available <= started else None


def rule_running(facts: Facts, counts: Counts) -> str | None:
    """Rule R: a running job ends, or falls back to Pending."""
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
    """Return whether a task missed its minimum.

    Checked only if the job's minimum covers the tasks'.
    """
    together = sum(replicas if least is None else least for _, replicas, least in facts.tasks)
    if facts.min_available < together:
        return False
    return any(
        least is not None and task in counts.by_task and counts.of(task, PodPhase.SUCCEEDED) < least
        for task, _, least in facts.tasks
    )


def rule_restarting(facts: Facts, counts: Counts) -> str | None:
    """Rule X. More retries than allowed occur only on jobs imported from another system."""
    if facts.retry_count > facts.max_retry:
        return JobPhase.FAILED
    enough_are_free = facts.replicas - counts.terminating >= facts.min_available
    return JobPhase.PENDING if enough_are_free else None


def _when_stopped(phase: str) -> Rule:
    """Rules A, C and T: no pod is pending, running or terminating."""

    def rule(facts: Facts, counts: Counts) -> str | None:
        return None if counts.terminating or counts.pending or counts.running else phase

    return rule


rule_aborting = _when_stopped(JobPhase.ABORTED)
rule_completing = _when_stopped(JobPhase.COMPLETED)
rule_terminating = _when_stopped(JobPhase.TERMINATED)


@dataclass(frozen=True, slots=True)
class Transition:
    """The effect of an action on a job in some phase."""

    operation: PodOperation
    to: str | None = None
    """The phase that is entered at once."""
    rule: Rule | None = None
    """The rule for the next phase, if `to` is None."""
    is_retry: bool = False
    """Counts against maxRetry; without retries left the job fails instead."""


_RESTART_JOB: Final = Transition(PodOperation.KILL_ALL, to=JobPhase.RESTARTING, is_retry=True)
_RESTART_TARGET: Final = Transition(PodOperation.KILL_TARGET, to=JobPhase.RESTARTING, is_retry=True)
_RESUME: Final = Transition(PodOperation.KILL_SOFT, to=JobPhase.RESTARTING)
_OUT_OF_RETRIES: Final = Transition(PodOperation.KILL_SOFT, to=JobPhase.FAILED)

TARGETED: Final = (Action.RESTART_TASK, Action.RESTART_POD, Action.RESTART_PARTITION)
_ANY: Final = "any other action"


_STOP: Final[Mapping[str, Transition]] = {
    Action.ABORT_JOB: Transition(PodOperation.KILL_SOFT, to=JobPhase.ABORTING),
    Action.TERMINATE_JOB: Transition(PodOperation.KILL_SOFT, to=JobPhase.TERMINATING),
    Action.COMPLETE_JOB: Transition(PodOperation.KILL_SOFT, to=JobPhase.COMPLETING),
}


def _alive(rule: Rule) -> Mapping[str, Transition]:
    return {
        Action.RESTART_JOB: _RESTART_JOB,
        **dict.fromkeys(TARGETED, _RESTART_TARGET),
        **_STOP,
        _ANY: Transition(PodOperation.SYNC, rule=rule),
    }


_STAY_STOPPED: Final = Transition(PodOperation.KILL_SOFT)

TABLE: Final[Mapping[str, Mapping[str, Transition]]] = {
    JobPhase.PENDING: _alive(rule_pending),
    JobPhase.RUNNING: _alive(rule_running),
    JobPhase.RESTARTING: {
        Action.RESTART_JOB: Transition(PodOperation.KILL_ALL, rule=rule_restarting),
        **dict.fromkeys(TARGETED, Transition(PodOperation.KILL_TARGET, rule=rule_restarting)),
        **_STOP,
        # Pods are created once the job is Pending again; until then a sync applies only the rule.
        _ANY: Transition(PodOperation.NOTHING, rule=rule_restarting),
    },
    JobPhase.ABORTING: {
        Action.RESUME_JOB: _RESUME,
        **dict.fromkeys(_STOP, Transition(PodOperation.NOTHING, rule=rule_aborting)),
        _ANY: Transition(PodOperation.KILL_SOFT, rule=rule_aborting),
    },
    JobPhase.ABORTED: {
        Action.RESUME_JOB: _RESUME,
        **dict.fromkeys((*TARGETED, *_STOP), Transition(PodOperation.NOTHING)),
        _ANY: _STAY_STOPPED,
    },
    JobPhase.COMPLETING: {_ANY: Transition(PodOperation.KILL_SOFT, rule=rule_completing)},
    JobPhase.TERMINATING: {_ANY: Transition(PodOperation.KILL_SOFT, rule=rule_terminating)},
    JobPhase.COMPLETED: {_ANY: _STAY_STOPPED},
    JobPhase.FAILED: {_ANY: _STAY_STOPPED},
    JobPhase.TERMINATED: {_ANY: _STAY_STOPPED},
}

PHASES: Final = tuple(TABLE)


def transition_for(
    phase: str, action: str, facts: Facts, *, for_eviction: bool = False
) -> Transition:
    """Return the transition of `action` in `phase`; an unknown phase counts as Pending.

    A restart `for_eviction` of pods is no failure of the job, and no retry.
    """
    row = TABLE.get(phase, TABLE[JobPhase.PENDING])
    transition = row.get(action, row[_ANY])
    if for_eviction:
        return replace(transition, is_retry=False)
    if transition.is_retry and facts.retries_are_spent:
        return _OUT_OF_RETRIES
    return transition


def phase_after_sync(phase: str, facts: Facts, counts: Counts) -> str | None:
    """Return the phase to which a plain sync leads; None to stay."""
    rule = transition_for(phase, Action.SYNC_JOB, facts).rule
    return None if rule is None else rule(facts, counts)

"""The job state machine over all phases and actions, and its rules."""

import pytest

from hekla.api.wellknown import Action, JobPhase
from hekla.controllers.job.state import (
    PHASES,
    TARGETED,
    Counts,
    Facts,
    PodOperation,
    Rule,
    rule_aborting,
    rule_completing,
    rule_pending,
    rule_restarting,
    rule_running,
    rule_terminating,
    transition_for,
)

FACTS = Facts(replicas=3, min_available=2, tasks=(("worker", 3, 2),))
SPENT = Facts(replicas=3, min_available=2, retry_count=3)
ACTIONS = [*sorted(Action.IN_POLICIES), Action.SYNC_JOB, Action.ENQUEUE_JOB, "Nonsense"]

P, R = JobPhase.PENDING, JobPhase.RUNNING
ALL, SOFT, TARGET = PodOperation.KILL_ALL, PodOperation.KILL_SOFT, PodOperation.KILL_TARGET
SYNC, NOTHING = PodOperation.SYNC, PodOperation.NOTHING
STOPS = {
    Action.ABORT_JOB: JobPhase.ABORTING,
    Action.TERMINATE_JOB: JobPhase.TERMINATING,
    Action.COMPLETE_JOB: JobPhase.COMPLETING,
}
ENDING = {
    JobPhase.ABORTING: rule_aborting,
    JobPhase.COMPLETING: rule_completing,
    JobPhase.TERMINATING: rule_terminating,
}


def want(phase: str, action: str) -> tuple[PodOperation, str | None, Rule | None, bool]:
    """Return operation, next phase, rule and whether it is a retry, as in reference §2.1."""
    if phase in (P, R):
        if action == Action.RESTART_JOB:
            return ALL, JobPhase.RESTARTING, None, True
        if action in TARGETED:
            return TARGET, JobPhase.RESTARTING, None, True
        if action in STOPS:
            return SOFT, STOPS[action], None, False
        return SYNC, None, rule_pending if phase == P else rule_running, False
    if phase == JobPhase.RESTARTING:
        if action in TARGETED:
            return TARGET, None, rule_restarting, False
        if action == Action.RESTART_JOB:
            return ALL, None, rule_restarting, False
        if action in STOPS:  # unlike Volcano, the command is not dropped
            return SOFT, STOPS[action], None, False
        return NOTHING, None, rule_restarting, False
    if phase in (JobPhase.ABORTING, JobPhase.ABORTED) and action == Action.RESUME_JOB:
        return SOFT, JobPhase.RESTARTING, None, False
    if phase == JobPhase.ABORTING:
        return NOTHING if action in STOPS else SOFT, None, rule_aborting, False
    if phase == JobPhase.ABORTED:
        return NOTHING if action in STOPS or action in TARGETED else SOFT, None, None, False
    return SOFT, None, ENDING.get(phase), False


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("phase", PHASES)
def test_every_phase_and_action_gives_the_transition_of_the_reference(
    phase: str, action: str
) -> None:
    transition = transition_for(phase, action, FACTS)
    assert want(phase, action) == (
        transition.operation,
        transition.to,
        transition.rule,
        transition.is_retry,
    )


@pytest.mark.parametrize("action", [Action.RESTART_JOB, *TARGETED])
@pytest.mark.parametrize("phase", [P, R])
def test_a_restart_without_retries_left_fails_the_job(phase: str, action: str) -> None:
    transition = transition_for(phase, action, SPENT)
    assert (transition.operation, transition.to) == (SOFT, JobPhase.FAILED)


def test_max_retry_zero_allows_no_restart() -> None:
    none = Facts(replicas=1, min_available=1, max_retry=0)
    assert transition_for(R, Action.RESTART_JOB, none).to == JobPhase.FAILED


def test_resuming_needs_no_retry() -> None:
    transition = transition_for(JobPhase.ABORTED, Action.RESUME_JOB, SPENT)
    assert transition.to == JobPhase.RESTARTING


@pytest.mark.parametrize("phase", ["", "Strange"])
def test_unknown_phase_counts_as_pending(phase: str) -> None:
    assert transition_for(P, Action.SYNC_JOB, FACTS) == transition_for(
        phase, Action.SYNC_JOB, FACTS
    )


def tasks(**phases: dict[str, int]) -> dict[str, dict[str, int]]:
    return phases


RUNNING = {
    "a job without replicas stays": (Facts(0, 0), Counts(), None),
    "minSuccess is reached while others run": (
        Facts(3, 2, min_success=1),
        Counts(succeeded=1, running=2),
        JobPhase.COMPLETED,
    ),
    "all finished, enough succeeded": (FACTS, Counts(succeeded=2, failed=1), JobPhase.COMPLETED),
    "all finished, too few succeeded": (FACTS, Counts(succeeded=1, failed=2), JobPhase.FAILED),
    "all finished, fewer than minSuccess": (
        Facts(3, 1, min_success=3),
        Counts(succeeded=2, failed=1),
        JobPhase.FAILED,
    ),
    "all finished, one task below its minAvailable": (
        Facts(4, 4, tasks=(("ps", 1, 1), ("worker", 3, 1))),
        Counts(succeeded=3, failed=1, by_task=tasks(ps={"Failed": 1}, worker={"Succeeded": 3})),
        JobPhase.FAILED,
    ),
    "minAvailable of a task is ignored if that of the job is lower than the sum": (
        Facts(4, 3, tasks=(("ps", 1, 1), ("worker", 3, 3))),
        Counts(succeeded=3, failed=1, by_task=tasks(ps={"Failed": 1}, worker={"Succeeded": 3})),
        JobPhase.COMPLETED,
    ),
    "a task without pods does not fail the job": (
        Facts(1, 1, tasks=(("ps", 0, 0), ("worker", 1, 1))),
        Counts(succeeded=1, by_task=tasks(worker={"Succeeded": 1})),
        JobPhase.COMPLETED,
    ),
    "too many pending pods set the job to Pending": (FACTS, Counts(pending=2, running=1), P),
    "pending pods beyond minAvailable do not": (FACTS, Counts(pending=1, running=2), None),
}


@pytest.mark.parametrize("case", RUNNING)
def test_running_job_ends_or_stays_by_its_counts(case: str) -> None:
    facts, counts, want_phase = RUNNING[case]
    assert want_phase == rule_running(facts, counts)


def test_a_pending_job_runs_when_its_minimum_has_started() -> None:
    assert rule_pending(FACTS, Counts(running=1)) is None
    assert rule_pending(FACTS, Counts(running=1, failed=1)) == R


def test_a_restarting_job_is_pending_when_enough_pods_are_gone() -> None:
    assert rule_restarting(FACTS, Counts(terminating=2)) is None
    assert rule_restarting(FACTS, Counts(terminating=1)) == P


@pytest.mark.parametrize(
    ("rule", "end"),
    [
        (rule_aborting, JobPhase.ABORTED),
        (rule_completing, JobPhase.COMPLETED),
        (rule_terminating, JobPhase.TERMINATED),
    ],
)
def test_stopping_job_ends_when_no_pod_runs_or_terminates(rule: Rule, end: str) -> None:
    for left in (Counts(terminating=1), Counts(pending=1), Counts(running=1)):
        assert rule(FACTS, left) is None
    assert end == rule(FACTS, Counts(succeeded=1, failed=1))

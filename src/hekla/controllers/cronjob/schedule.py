"""Decide which jobs of a cron job to create and delete.

`next_step` is pure: the cron job, its jobs and the time in, effects out. The name of a job follows
from its scheduled time, so each run is created only once. The last scheduled time is the later of
`lastScheduleTime` and the times of the jobs.

Note: of several missed runs only the latest is started, and only if it is not older than
`startingDeadlineSeconds`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from hekla.api import wellknown
from hekla.api.wellknown import CronReason, JobPhase
from hekla.controllers.effects import CreateJob, DeleteJob, EmitEvent, RequeueAfter, SetStatus
from hekla.controllers.objects import (
    act_for_submitter,
    annotations_of,
    created_at,
    is_deleting,
    job_phase,
    key_of,
    owner_reference,
    seconds,
    status_of,
    uid_of,
)
from hekla.kube.resources import CRON_JOBS, JOBS, Resource
from hekla.units.cron import CronError, Next, parse_cron
from hekla.units.objects import Object
from hekla.units.patches import create_merge_patch
from hekla.units.timestamps import format_time

MAX_MISSED: Final = 100
REQUEUE_MARGIN_S: Final = 0.1
DEFAULT_SUCCESSFUL: Final = 3
DEFAULT_FAILED: Final = 1
SUCCEEDED, FAILED = "succeeded", "failed"


Effect = CreateJob | DeleteJob | SetStatus | EmitEvent | RequeueAfter


def _volcano_outcome(job: Object) -> str:
    phase = job_phase(job)
    if phase == JobPhase.COMPLETED:
        return SUCCEEDED
    return FAILED if phase in JobPhase.FINISHED else ""


def _volcano_end(job: Object) -> str | None:
    found: str | None = (status_of(job).get("state") or {}).get("lastTransitionTime")
    return found


@dataclass(frozen=True)
class CronJobKind:
    """The differences between Volcano's CronJobs and those of Kubernetes."""

    crons: Resource[Any]
    jobs: Resource[Any]
    timestamp: str
    """The annotation of a job that holds its scheduled time."""
    outcome: Callable[[Object], str]
    """Return `SUCCEEDED`, `FAILED`, or an empty text for an unfinished job."""
    ended: Callable[[Object], str | None]
    """Return when a job finished."""


VOLCANO: Final = CronJobKind(
    CRON_JOBS, JOBS, wellknown.CRONJOB_SCHEDULED_TIMESTAMP, _volcano_outcome, _volcano_end
)


@dataclass(frozen=True)
class CronView:
    """The input of a decision about one cron job."""

    cron: Object
    now: float
    jobs: Sequence[Object] = ()
    local: tzinfo = UTC
    """The time zone of schedules without `timeZone`."""
    kind: CronJobKind = VOLCANO

    @property
    def spec(self) -> Object:
        found: Object = self.cron["spec"]
        return found


def next_step(view: CronView) -> list[Effect]:
    """Return the effects that reconcile a cron job."""
    if is_deleting(view.cron):
        return []
    effects: list[Effect] = [*_prune_history(view)]
    active = [job for job in view.jobs if not view.kind.outcome(job)]
    last = _last_scheduled(view)
    starts: list[Effect] = []
    if not view.spec.get("suspend"):
        starts, active, last = _start_due_run(view, active, last)
    effects += starts
    patch = _status(view, active, last)
    return effects + ([SetStatus(patch)] if patch else [])


def _start_due_run(
    view: CronView, active: list[Object], last: float | None
) -> tuple[list[Effect], list[Object], float | None]:
    """Return the effects of a due run, and the active jobs and last scheduled time after it."""
    try:
        zone = _zone(view)
        next_time = parse_cron(view.spec.get("schedule") or "")
    except ZoneInfoNotFoundError as error:
        return [EmitEvent("Warning", CronReason.INVALID_TIME_ZONE, str(error))], active, last
    except CronError as error:
        message = f"schedule {view.spec.get('schedule')!r}: {error}"
        return [EmitEvent("Warning", CronReason.UNPARSEABLE_SCHEDULE, message)], active, last
    effects: list[Effect] = []
    earliest = last if last is not None else created_at(view.cron)
    deadline_s = view.spec.get("startingDeadlineSeconds")
    if deadline_s is not None:
        earliest = max(earliest, view.now - float(deadline_s))
    due, is_truncated = latest_missed(next_time, earliest, view.now, zone)
    if is_truncated:
        message = f"more than {MAX_MISSED} runs were missed; only the latest is started"
        effects.append(EmitEvent("Warning", CronReason.TOO_MANY_MISSED_TIMES, message))
    requeue = RequeueAfter(_seconds_to_next(next_time, view.now, zone) + REQUEUE_MARGIN_S)
    if due is None:
        return [*effects, requeue], active, last
    policy = view.spec.get("concurrencyPolicy") or "Allow"
    if active and policy == "Forbid":
        message = f"a run is still active: {active[0]['metadata']['name']}"
        return (
            [*effects, EmitEvent("Normal", CronReason.FORBID_CONCURRENT, message), requeue],
            active,
            last,
        )
    if active and policy == "Replace":
        effects += [DeleteJob(job) for job in active]
        active = []
    body = job_for_run(view.cron, due, zone if view.spec.get("timeZone") else UTC, view.kind)
    effects.append(CreateJob(body))
    return [*effects, requeue], [*active, body], due


def latest_missed(
    next_time: Next, earliest: float, now: float, zone: tzinfo
) -> tuple[float | None, bool]:
    """Return the last time in (`earliest`, `now`], and whether more than MAX_MISSED were missed."""
    moment, end = datetime.fromtimestamp(earliest, zone), datetime.fromtimestamp(now, zone)
    found: datetime | None = None
    for _ in range(MAX_MISSED):
        try:
            moment = next_time(moment)
        except StopIteration:
            return (None if found is None else found.timestamp()), False
        if moment > end:
            return (None if found is None else found.timestamp()), False
        found = moment
    # Too many to enumerate: search from the shortest time ago that still has a run.
    back = timedelta(minutes=1)
    while next_time(end - back) > end:
        back *= 2
    moment = max(end - back, moment)
    while (after := next_time(moment)) <= end:
        moment = found = after
    assert found is not None
    return found.timestamp(), True


def _seconds_to_next(next_time: Next, now: float, zone: tzinfo) -> float:
    with suppress(StopIteration):
        return max(0.0, next_time(datetime.fromtimestamp(now, zone)).timestamp() - now)
    return 86_400.0  # a schedule without a next time, such as 30 February


def _zone(view: CronView) -> tzinfo:
    name = view.spec.get("timeZone")
    if not name:
        return view.local
    try:
        return ZoneInfo(name)
    except (ValueError, OSError) as error:
        raise ZoneInfoNotFoundError(f"time zone {name!r}: {error}") from error


def job_for_run(cron: Object, due: float, zone: tzinfo, kind: CronJobKind = VOLCANO) -> Object:
    """Return the job of one run."""
    template = cron["spec"]["jobTemplate"]
    given = template.get("metadata") or {}
    when = datetime.fromtimestamp(due, zone)
    stamp = format_time(due) if zone is UTC else when.isoformat(timespec="seconds")
    metadata: Object = {
        "name": f"{cron['metadata']['name']}-{int(due) // 60}",
        "namespace": cron["metadata"]["namespace"],
        "annotations": {
            **(given.get("annotations") or {}),
            kind.timestamp: stamp,
        },
        "ownerReferences": [owner_reference(kind.crons.api_version, "CronJob", cron)],
    }
    act_for_submitter(metadata, cron)
    if given.get("labels"):
        metadata["labels"] = dict(given["labels"])
    return {
        "apiVersion": kind.jobs.api_version,
        "kind": "Job",
        "metadata": metadata,
        "spec": template["spec"],
    }


def _last_scheduled(view: CronView) -> float | None:
    times = [seconds(status_of(view.cron).get("lastScheduleTime"))]
    times += [seconds(annotations_of(job).get(view.kind.timestamp)) for job in view.jobs]
    return max((time for time in times if time is not None), default=None)


def _prune_history(view: CronView) -> list[Effect]:
    """Delete finished jobs beyond the history limits, oldest first.

    Volcano does not count terminated jobs; here they count as failed.
    """
    limits = (
        (SUCCEEDED, "successfulJobsHistoryLimit", DEFAULT_SUCCESSFUL),
        (FAILED, "failedJobsHistoryLimit", DEFAULT_FAILED),
    )
    effects: list[Effect] = []
    for outcome, name, default in limits:
        limit = view.spec.get(name)
        keep = default if limit is None else int(limit)
        ended = sorted(
            (j for j in view.jobs if view.kind.outcome(j) == outcome and not is_deleting(j)),
            key=lambda job: (created_at(job), key_of(job)),
        )
        effects += [DeleteJob(job) for job in ended[: max(0, len(ended) - keep)]]
    return effects


def _status(view: CronView, active: list[Object], last: float | None) -> Object:
    old = status_of(view.cron)
    new: Object = dict(old)
    references = [
        {
            "apiVersion": view.kind.jobs.api_version,
            "kind": "Job",
            "name": job["metadata"]["name"],
            "namespace": job["metadata"]["namespace"],
            **({"uid": uid_of(job)} if uid_of(job) else {}),
        }
        for job in sorted(active, key=key_of)
    ]
    if references or old.get("active"):
        new["active"] = references
    if last is not None:
        new["lastScheduleTime"] = format_time(last)
    kind = view.kind
    ended = [kind.ended(job) for job in view.jobs if kind.outcome(job) == SUCCEEDED]
    known = [time for time in [*ended, old.get("lastSuccessfulTime")] if time]
    if known:
        new["lastSuccessfulTime"] = max(known)
    patch: Object = create_merge_patch(old, new)
    return patch

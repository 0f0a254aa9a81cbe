"""Jobs by the calendar.

`next_step` is pure: the cron job, its jobs and the time in, effects out. A run's name follows from
its time, so it can be started only once; what was started is read from the jobs themselves and
from `lastScheduleTime`, whichever is later.

What a newcomer gets wrong: of several runs that were missed only the latest is made up for, and
only if it is not older than `startingDeadlineSeconds`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from hekla.api import wellknown
from hekla.api.wellknown import CronReason, JobPhase
from hekla.controllers.effects import (
    CreateJob as CreateJob,
)
from hekla.controllers.effects import (
    DeleteJob as DeleteJob,
)
from hekla.controllers.effects import (
    SetStatus as SetStatus,
)
from hekla.controllers.effects import (
    Tell as Tell,
)
from hekla.controllers.effects import (
    Wake as Wake,
)
from hekla.controllers.keyed import KeyedController
from hekla.controllers.metrics import Metrics
from hekla.controllers.objects import (
    Key,
    annotations_of,
    controller_of,
    created_at,
    is_deleting,
    job_phase,
    key_of,
    owner_reference,
    seconds,
    status_of,
    uid_of,
)
from hekla.controllers.watched import OWNER, World
from hekla.kube.errors import AlreadyExists, KubeError
from hekla.kube.recorder import EventRecorder
from hekla.kube.resources import CRON_JOBS, JOBS, Resource
from hekla.units.cron import CronError, Next, parse_cron
from hekla.units.objects import Object
from hekla.units.patches import create_merge_patch
from hekla.units.timestamps import format_time

MAX_MISSED: Final = 100
AFTER_S: Final = 0.1
DEFAULT_SUCCESSFUL: Final = 3
DEFAULT_FAILED: Final = 1
SUCCEEDED, FAILED = "succeeded", "failed"


Effect = CreateJob | DeleteJob | SetStatus | Tell | Wake


def _volcano_outcome(job: Object) -> str:
    phase = job_phase(job)
    if phase == JobPhase.COMPLETED:
        return SUCCEEDED
    return FAILED if phase in JobPhase.FINISHED else ""


def _volcano_end(job: Object) -> str | None:
    found: str | None = (status_of(job).get("state") or {}).get("lastTransitionTime")
    return found


@dataclass(frozen=True)
class Flavour:
    """What differs between Volcano's cron jobs and Kubernetes' own."""

    crons: Resource[Any]
    jobs: Resource[Any]
    timestamp: str
    """The annotation with the time a run was scheduled for."""
    outcome: Callable[[Object], str]
    """How a job ended: succeeded, failed, or empty while it has not."""
    ended: Callable[[Object], str | None]
    """When it did."""


VOLCANO: Final = Flavour(
    CRON_JOBS, JOBS, wellknown.CRONJOB_SCHEDULED_TIMESTAMP, _volcano_outcome, _volcano_end
)


@dataclass(frozen=True)
class CronView:
    cron: Object
    now: float
    jobs: Sequence[Object] = ()
    local: tzinfo = UTC
    """The zone of schedules that name none."""
    flavour: Flavour = VOLCANO

    @property
    def spec(self) -> Object:
        found: Object = self.cron["spec"]
        return found


def next_step(view: CronView) -> list[Effect]:
    """What to do about a cron job."""
    if is_deleting(view.cron):
        return []
    effects: list[Effect] = [*_history(view)]
    active = [job for job in view.jobs if not view.flavour.outcome(job)]
    last = _last_scheduled(view)
    starts: list[Effect] = []
    if not view.spec.get("suspend"):
        starts, active, last = _due(view, active, last)
    effects += starts
    patch = _status(view, active, last)
    return effects + ([SetStatus(patch)] if patch else [])


def _due(
    view: CronView, active: list[Object], last: float | None
) -> tuple[list[Effect], list[Object], float | None]:
    """The run that is due, if any, and when to look again."""
    try:
        zone = _zone(view)
        following = parse_cron(view.spec.get("schedule") or "")
    except ZoneInfoNotFoundError as error:
        return [Tell("Warning", CronReason.INVALID_TIME_ZONE, str(error))], active, last
    except CronError as error:
        told = f"schedule {view.spec.get('schedule')!r}: {error}"
        return [Tell("Warning", CronReason.UNPARSEABLE_SCHEDULE, told)], active, last
    effects: list[Effect] = []
    earliest = last if last is not None else created_at(view.cron)
    deadline_s = view.spec.get("startingDeadlineSeconds")
    if deadline_s is not None:
        earliest = max(earliest, view.now - float(deadline_s))
    due, is_many = latest_missed(following, earliest, view.now, zone)
    if is_many:
        told = f"more than {MAX_MISSED} runs were missed; only the latest is started"
        effects.append(Tell("Warning", CronReason.TOO_MANY_MISSED_TIMES, told))
    wake = Wake(_seconds_to(following, view.now, zone) + AFTER_S)
    if due is None:
        return [*effects, wake], active, last
    policy = view.spec.get("concurrencyPolicy") or "Allow"
    if active and policy == "Forbid":
        told = f"a run is still active: {active[0]['metadata']['name']}"
        return [*effects, Tell("Normal", CronReason.FORBID_CONCURRENT, told), wake], active, last
    if active and policy == "Replace":
        effects += [DeleteJob(job) for job in active]
        active = []
    body = run(view.cron, due, zone if view.spec.get("timeZone") else UTC, view.flavour)
    effects.append(CreateJob(body))
    return [*effects, wake], [*active, body], due


def latest_missed(
    following: Next, earliest: float, now: float, zone: tzinfo
) -> tuple[float | None, bool]:
    """The last scheduled time after `earliest` and not after `now`; whether there are very many."""
    moment, end = datetime.fromtimestamp(earliest, zone), datetime.fromtimestamp(now, zone)
    found: datetime | None = None
    for _ in range(MAX_MISSED):
        try:
            moment = following(moment)
        except StopIteration:
            return (None if found is None else found.timestamp()), False
        if moment > end:
            return (None if found is None else found.timestamp()), False
        found = moment
    # Many: go on from as short a time ago as still has one.
    back = timedelta(minutes=1)
    while following(end - back) > end:
        back *= 2
    moment = max(end - back, moment)
    while (after := following(moment)) <= end:
        moment = found = after
    assert found is not None
    return found.timestamp(), True


def _seconds_to(following: Next, now: float, zone: tzinfo) -> float:
    with suppress(StopIteration):
        return max(0.0, following(datetime.fromtimestamp(now, zone)).timestamp() - now)
    return 86_400.0  # a schedule without a next time, such as 30 February


def _zone(view: CronView) -> tzinfo:
    name = view.spec.get("timeZone")
    if not name:
        return view.local
    try:
        return ZoneInfo(name)
    except (ValueError, OSError) as error:
        raise ZoneInfoNotFoundError(f"time zone {name!r}: {error}") from error


def run(cron: Object, due: float, zone: tzinfo, flavour: Flavour = VOLCANO) -> Object:
    """The job of one run."""
    template = cron["spec"]["jobTemplate"]
    given = template.get("metadata") or {}
    when = datetime.fromtimestamp(due, zone)
    stamp = format_time(due) if zone is UTC else when.isoformat(timespec="seconds")
    metadata: Object = {
        "name": f"{cron['metadata']['name']}-{int(due) // 60}",
        "namespace": cron["metadata"]["namespace"],
        "annotations": {
            **(given.get("annotations") or {}),
            flavour.timestamp: stamp,
        },
        "ownerReferences": [owner_reference(flavour.crons.api_version, "CronJob", cron)],
    }
    if given.get("labels"):
        metadata["labels"] = dict(given["labels"])
    return {
        "apiVersion": flavour.jobs.api_version,
        "kind": "Job",
        "metadata": metadata,
        "spec": template["spec"],
    }


def _last_scheduled(view: CronView) -> float | None:
    times = [seconds(status_of(view.cron).get("lastScheduleTime"))]
    times += [seconds(annotations_of(job).get(view.flavour.timestamp)) for job in view.jobs]
    return max((time for time in times if time is not None), default=None)


def _history(view: CronView) -> list[Effect]:
    """Finished jobs beyond the limits, the oldest first. Volcano forgets the terminated ones."""
    limits = (
        (SUCCEEDED, "successfulJobsHistoryLimit", DEFAULT_SUCCESSFUL),
        (FAILED, "failedJobsHistoryLimit", DEFAULT_FAILED),
    )
    effects: list[Effect] = []
    for outcome, name, usual in limits:
        limit = view.spec.get(name)
        keep = usual if limit is None else int(limit)
        ended = sorted(
            (j for j in view.jobs if view.flavour.outcome(j) == outcome and not is_deleting(j)),
            key=lambda job: (created_at(job), key_of(job)),
        )
        effects += [DeleteJob(job) for job in ended[: max(0, len(ended) - keep)]]
    return effects


def _status(view: CronView, active: list[Object], last: float | None) -> Object:
    old = status_of(view.cron)
    new: Object = dict(old)
    references = [
        {
            "apiVersion": view.flavour.jobs.api_version,
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
    flavour = view.flavour
    ended = [flavour.ended(job) for job in view.jobs if flavour.outcome(job) == SUCCEEDED]
    known = [time for time in [*ended, old.get("lastSuccessfulTime")] if time]
    if known:
        new["lastSuccessfulTime"] = max(known)
    patch: Object = create_merge_patch(old, new)
    return patch


@lru_cache(maxsize=1)
def local_zone() -> tzinfo:
    """This machine's zone with its rules for summer time; UTC where it does not say."""
    try:
        with Path("/etc/localtime").open("rb") as file:
            return ZoneInfo.from_file(file)
    except (OSError, ValueError):
        return UTC


class CronJobController(KeyedController):
    """Of Volcano's cron jobs; another flavour is another subclass."""

    name = "cronjob-controller"
    flavour: ClassVar[Flavour] = VOLCANO

    def __init__(self, world: World, recorder: EventRecorder, metrics: Metrics) -> None:
        super().__init__(world, recorder, metrics)
        self._crons = world.watch(self.flavour.crons)
        self._jobs = world.watch(self.flavour.jobs)
        self._crons.add_handler(self.enqueue)
        self._jobs.add_handler(self._on_job)

    def _on_job(self, event: str, old: Object | None, new: Object | None) -> None:
        job = new or old
        assert job is not None
        owner = controller_of(job)
        if owner is None or owner.get("kind") != "CronJob":
            return
        outcome = self.flavour.outcome
        if old is not None and new is not None and outcome(old) == outcome(new):
            return
        self.queue.add((key_of(job)[0], owner["name"]))
        if new is not None and outcome(new):
            cron = self._crons.get(key_of(job)[0], owner["name"])
            if cron is not None:
                told = f"{job['metadata']['name']}: {job_phase(new) or outcome(new)}"
                self.tell(self.flavour.crons, cron, "Normal", CronReason.SAW_COMPLETED_JOB, told)

    async def sync(self, key: Key) -> float | None:
        cron = self._crons.get(*key)
        if cron is None:
            return None
        jobs = self._jobs.by_index(OWNER, uid_of(cron))
        wake: float | None = None
        for effect in next_step(CronView(cron, self.clock.now(), jobs, local_zone(), self.flavour)):
            if isinstance(effect, Wake):
                wake = effect.after_s
            else:
                await self._perform(cron, effect)
        return wake

    async def _perform(self, cron: Object, effect: Effect) -> None:
        namespace, name = key_of(cron)
        match effect:
            case CreateJob(body):
                await self._start(cron, body)
            case DeleteJob(job):
                job_name = job["metadata"]["name"]
                await self.client.delete(
                    self.flavour.jobs,
                    job_name,
                    namespace=namespace,
                    uid=uid_of(job),
                    propagation="Background",
                    missing_ok=True,
                )
                self._jobs.deleted(job)
                told = f"deleted job {job_name}"
                self.tell(self.flavour.crons, cron, "Normal", CronReason.SUCCESSFUL_DELETE, told)
            case SetStatus(patch):
                written = await self.client.patch_status(
                    self.flavour.crons,
                    name,
                    patch,
                    namespace=namespace,
                    expect=cron["metadata"]["resourceVersion"],
                )
                self._crons.wrote(written)
            case Tell(type, reason, message):
                self.tell(self.flavour.crons, cron, type, reason, message)

    async def _start(self, cron: Object, body: Object) -> None:
        namespace, name = key_of(body)
        try:
            made: Any = await self.client.create(self.flavour.jobs, body)
        except AlreadyExists:
            found = await self.client.get(self.flavour.jobs, name, namespace=namespace)
            owner = controller_of(found)
            if owner is None or owner.get("uid") != uid_of(cron):
                told = f"job {name} exists and is not this cron job's; the run is left out"
                self.tell(self.flavour.crons, cron, "Warning", CronReason.FOREIGN_JOB, told)
            return
        except KubeError as error:
            told = f"job {name} could not be created: {error}"
            self.tell(self.flavour.crons, cron, "Warning", CronReason.FAILED_CREATE, told)
            raise
        self._jobs.wrote(made)
        self.metrics.count("cronjob_runs_started")
        self.tell(
            self.flavour.crons, cron, "Normal", CronReason.SUCCESSFUL_CREATE, f"created job {name}"
        )

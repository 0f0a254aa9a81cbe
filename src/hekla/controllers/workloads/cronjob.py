"""Kubernetes' CronJobs, in terms of `hekla.controllers.cronjob`."""

from __future__ import annotations

from typing import Final

from hekla.controllers.cronjob.schedule import FAILED, SUCCEEDED, CronJobKind
from hekla.controllers.objects import status_of
from hekla.controllers.workloads.job import COMPLETE, holds
from hekla.controllers.workloads.job import FAILED as JOB_FAILED
from hekla.kube.resources import BATCH_CRON_JOBS, BATCH_JOBS
from hekla.units.objects import Object

TIMESTAMP: Final = "batch.kubernetes.io/cronjob-scheduled-timestamp"


def outcome(job: Object) -> str:
    """Return how a job finished, as `CronJobKind.outcome`."""
    if holds(job, COMPLETE):
        return SUCCEEDED
    return FAILED if holds(job, JOB_FAILED) else ""


def ended(job: Object) -> str | None:
    """Return when a job finished."""
    found: str | None = status_of(job).get("completionTime")
    return found


KUBERNETES: Final = CronJobKind(BATCH_CRON_JOBS, BATCH_JOBS, TIMESTAMP, outcome, ended)

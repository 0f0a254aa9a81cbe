"""Admission of Volcano's kinds: defaulting and validation against the cluster state.

Pure functions. The embedded server, the webhooks and the command line call the same two: `default`
for a new object, then `check` for every write.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from hekla.api import wellknown
from hekla.api.rules.fields import FieldError, FieldErrors
from hekla.api.volcano import flows, groups, jobs, queues
from hekla.api.volcano.view import View
from hekla.units.objects import Object

__all__ = ["MAX_ERRORS", "View", "check", "default", "first_errors"]

MAX_ERRORS: Final = 100

JOB = (wellknown.BATCH_API, "Job")
CRON_JOB = (wellknown.BATCH_API, "CronJob")
QUEUE = (wellknown.SCHEDULING_API, "Queue")
POD_GROUP = (wellknown.SCHEDULING_API, "PodGroup")
JOB_FLOW = (wellknown.FLOW_API, "JobFlow")
JOB_TEMPLATE = (wellknown.FLOW_API, "JobTemplate")
HYPER_NODE = (wellknown.TOPOLOGY_API, "HyperNode")
POD = ("v1", "Pod")


def default(obj: Object, view: View) -> None:
    """Apply defaults to a new object, in place."""
    match (obj.get("apiVersion"), obj.get("kind")):
        case kind if kind == JOB:
            jobs.default(obj, view)
        case kind if kind == QUEUE:
            queues.default(obj)
        case kind if kind == POD_GROUP:
            groups.default(obj, view)
        case kind if kind == POD:
            groups.default_queue_gate(obj)


def check(operation: str, obj: Object, old: Object | None, view: View) -> FieldErrors:
    """Yield all errors of a create, update or delete of a Volcano kind or a pod."""
    kind = (obj.get("apiVersion", ""), obj.get("kind", ""))
    if operation == "delete":
        if kind == QUEUE:
            yield from queues.check_delete(obj, view)
        return
    if kind == JOB:
        yield from jobs.check(obj, old, view)
    elif kind == QUEUE:
        yield from queues.check(obj, old, view)
    elif kind == POD_GROUP:
        yield from groups.check(obj, old, view)
    elif kind == POD and old is None:
        yield from groups.check_pod(obj, view)
    elif kind == CRON_JOB:
        yield from flows.check_cron(obj, view)
    elif kind == JOB_FLOW:
        yield from flows.check_flow(obj)
    elif kind == JOB_TEMPLATE:
        yield from flows.check_template(obj, view)
    elif kind == HYPER_NODE:
        yield from flows.check_hypernode(obj)


def first_errors(operation: str, obj: Object, old: Object | None, view: View) -> list[FieldError]:
    """Return the first errors of `check`, for an answer: an object may have millions."""
    return list(islice(check(operation, obj, old, view), MAX_ERRORS))

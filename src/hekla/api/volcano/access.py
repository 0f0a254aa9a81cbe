"""The queues that an object submits to, and the user recorded as its submitter. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator

from hekla.api import wellknown
from hekla.api.pod_security import pod_templates
from hekla.units.objects import Object

GROUP = "scheduling.volcano.sh"
_BATCH, _FLOW = "batch.volcano.sh", "flow.volcano.sh"
_SUBMITTED = frozenset(
    {
        ("", "Pod"),
        (_BATCH, "Job"),
        (_BATCH, "CronJob"),
        (GROUP, "PodGroup"),
        (_FLOW, "JobFlow"),
    }
)


def submitted_queues(
    group: str,
    kind: str,
    obj: Object,
    *,
    default: Callable[[], str],
    schedulers: Collection[str],
) -> Iterator[tuple[str, str]]:
    """Yield each queue that an object submits to, with the field that names it.

    `default` returns the queue of pods that name none. `schedulers` are those that place pods by
    queues. A pod of a group is submitted by its group.
    """
    spec = obj.get("spec") or {}
    if (group, kind) in ((_BATCH, "Job"), (GROUP, "PodGroup"), (_FLOW, "JobTemplate")):
        yield "spec.queue", spec.get("queue") or wellknown.DEFAULT_QUEUE
    elif (group, kind) == (_BATCH, "CronJob"):
        job = (spec.get("jobTemplate") or {}).get("spec") or {}
        yield "spec.jobTemplate.spec.queue", job.get("queue") or wellknown.DEFAULT_QUEUE
    elif (group, kind) == (_FLOW, "JobFlow"):
        for index, flow in enumerate(spec.get("flows") or ()):
            queue = ((flow.get("patch") or {}).get("jobSpec") or {}).get("queue")
            if queue:
                yield f"spec.flows[{index}].patch.jobSpec.queue", queue
    elif (group, kind) == ("", "Pod"):
        yield from _pod("", obj, default, schedulers)
    else:
        for _, template in pod_templates(group, kind, obj):
            yield from _pod("template.", template, default, schedulers)


def _pod(
    prefix: str, pod: Object, default: Callable[[], str], schedulers: Collection[str]
) -> Iterator[tuple[str, str]]:
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    if wellknown.GROUP_NAME in annotations:
        return
    scheduler = (pod.get("spec") or {}).get("schedulerName") or wellknown.KUBERNETES_SCHEDULER
    is_ours = scheduler in schedulers
    named = annotations.get(wellknown.POD_QUEUE_NAME)
    if is_ours or named:
        field = f"{prefix}metadata.annotations[{wellknown.POD_QUEUE_NAME}]"
        yield field, named or default()


def refusal(user: str, queue: str, field: str) -> str:
    """Return why a submission is refused, and how an administrator allows it."""
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": f"use-queue-{queue}"},
        "rules": [
            {"apiGroups": [GROUP], "resources": ["queues"], "resourceNames": [queue],
             "verbs": ["use"]}
        ],
    }  # fmt: skip
    kind, _, account = user.partition("system:serviceaccount:")
    subject = f"--serviceaccount={account}" if not kind and account else f"--user={user}"
    compact = json.dumps(role, separators=(",", ":"))
    return (
        f'{field} is "{queue}": user "{user}" does not have the right "use" on this queue. Name a '
        f"queue that you may use, or ask an administrator to grant it: echo '{compact}' | kubectl "
        f"apply -f - && kubectl create clusterrolebinding use-queue-{queue}-{account or user} "
        f"--clusterrole=use-queue-{queue} {subject}"
    )


def record_submitter(
    group: str, kind: str, obj: Object, old: Object | None, user: str, *, is_trusted: bool
) -> None:
    """Set the annotation of the submitting user; later writes keep the first.

    A trusted writer is an administrator, or a controller that acts for a user: it may name the
    user, and is not recorded itself.
    """
    if is_trusted or (group, kind) not in _SUBMITTED:
        return
    metadata = obj.setdefault("metadata", {})
    annotations = dict(metadata.get("annotations") or {})
    before = ((old or {}).get("metadata") or {}).get("annotations") or {}
    recorded = user if old is None else before.get(wellknown.SUBMITTED_BY)
    if annotations.get(wellknown.SUBMITTED_BY) == recorded:
        return
    annotations.pop(wellknown.SUBMITTED_BY, None)
    if recorded is not None:
        annotations[wellknown.SUBMITTED_BY] = recorded
    metadata["annotations"] = annotations

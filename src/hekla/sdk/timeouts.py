"""What the TimeoutError of a wait says: why its jobs have not come further, and the next step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hekla.kube.client import Client
from hekla.kube.errors import KubeError
from hekla.kube.kubeconfig import ClusterConfig
from hekla.kube.resources import EVENTS, JOBS, PODGROUPS, PODS, QUEUES
from hekla.kube.sync_client import SyncClient
from hekla.sdk import job_commands, pending_reasons
from hekla.sdk.explanation import explanation, queue_of
from hekla.units.objects import Object

MAX_EXPLAINED = 5
"""Jobs whose reasons are in one error."""
TIMEOUT_S = 10.0
"""Of a request: the caller has waited long enough."""
WARNINGS = "type=Warning"
"""Field selector of the events that are reasons."""


def lines_of(
    job: Object,
    group: Object | None,
    queue: Object | None,
    pods: Sequence[Object],
    warnings: Iterable[Object],
) -> list[str]:
    """Return the explanation of a job with the warnings that it does not contain.

    Quotas, volumes and admission are in events only.
    """
    found = explanation(job, group, queue, pods)
    known, steps = [found.reason], list(found.next_steps)
    uids = {one["metadata"]["uid"] for one in (job, group, *pods) if one is not None}
    for event in warnings:
        if (event.get("involvedObject") or {}).get("uid") not in uids:
            continue
        for reason in pending_reasons.of_event(event):
            if not any(reason.core in text for text in known):
                known.append(reason.text)
                steps += [reason.hint] if reason.hint else []
    metadata = job["metadata"]
    steps = steps or [f"hekla explain {metadata['name']} -n {metadata['namespace']}"]
    full = replace(found, reason="; ".join(known), next_steps=tuple(dict.fromkeys(steps)))
    return str(full).splitlines()


def reasons(config: ClusterConfig, namespace: str, name: str) -> list[str]:
    """Return why a job has not come further; nothing if unknown.

    Note: it has a client of its own, since futures are awaited in any thread.
    """
    try:
        with SyncClient(config, component="sdk", timeout_s=TIMEOUT_S) as client:
            return _reasons_of(client, namespace, name)
    except KubeError:  # the timeout is the failure, not this
        return []


def _reasons_of(client: SyncClient, namespace: str, name: str) -> list[str]:
    job = client.get(JOBS, name, namespace=namespace)
    selector = job_commands.pods_selector(name)
    pods = client.list(PODS, namespace=namespace, label_selector=selector)
    return lines_of(
        job,
        client.find(PODGROUPS, job_commands.group_name(job), namespace=namespace),
        client.find(QUEUES, queue_of(job)),
        job_commands.owned(job, pods),
        client.list(EVENTS, namespace=namespace, field_selector=WARNINGS),
    )


async def reasons_async(client: Client, namespace: str, name: str) -> list[str]:
    """Return why a job has not come further; nothing if unknown."""
    try:
        job = await client.get(JOBS, name, namespace=namespace)
        selector = job_commands.pods_selector(name)
        group = await client.find(PODGROUPS, job_commands.group_name(job), namespace=namespace)
        queue = await client.find(QUEUES, queue_of(job))
        pods = await client.list(PODS, namespace=namespace, label_selector=selector)
        warnings = await client.list(EVENTS, namespace=namespace, field_selector=WARNINGS)
        return lines_of(job, group, queue, job_commands.owned(job, pods), warnings)
    except KubeError:  # the timeout is the failure, not this
        return []


def timed_out(what: str, lines: Sequence[str]) -> TimeoutError:
    """Return the error: what was awaited, then the reasons, one line each."""
    return TimeoutError("\n".join([what, *lines]))

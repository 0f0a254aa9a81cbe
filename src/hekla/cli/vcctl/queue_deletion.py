"""Deletion of a queue together with its jobs: `vcctl queue delete --force`."""

from __future__ import annotations

from dataclasses import dataclass, field

from hekla.api import wellknown
from hekla.api.volcano.queues import BUILTIN_QUEUES, describe_workloads, unfinished_workloads
from hekla.api.volcano.view import children_of
from hekla.api.wellknown import Action
from hekla.cli.vcctl.commands import warn
from hekla.cli.vcctl.errors import CommandFailed
from hekla.cli.vcctl.output import name_of
from hekla.kube.resources import COMMANDS, JOBS, PODGROUPS, PODS
from hekla.kube.sync_client import SyncClient
from hekla.sdk import job_commands, validation
from hekla.units.objects import Object


@dataclass(slots=True)
class Deletion:
    """What to delete for the workloads of a queue."""

    jobs: list[Object] = field(default_factory=list)
    groups: list[Object] = field(default_factory=list)
    pods: list[tuple[str, str]] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    """PodGroups of other workloads, which would create them again."""


def plan(workloads: list[Object]) -> Deletion:
    """Return what to delete. The group of a bare pod is deleted before its pod has ended."""
    deletion = Deletion()
    for each in workloads:
        metadata = each["metadata"]
        owners: list[Object] = metadata.get("ownerReferences") or []
        owner = next((each for each in owners if each.get("controller")), None)
        if each.get("kind") == "Job":
            deletion.jobs.append(each)
        elif owner is None:
            deletion.groups.append(each)
        elif (owner.get("apiVersion"), owner.get("kind")) == ("v1", "Pod"):
            deletion.pods.append((metadata["namespace"], owner["name"]))
            deletion.groups.append(each)
        else:
            deletion.kept.append(f"{owner['kind']} {metadata['namespace']}/{owner['name']}")
    return deletion


def delete_workloads(client: SyncClient, queue: Object) -> None:
    """Close the queue and delete its unfinished jobs; report their number first."""
    name, view = name_of(queue), validation.ClusterView(client)
    if name in BUILTIN_QUEUES or children_of(name, view):
        return  # The server refuses the deletion and gives the reason.
    workloads = unfinished_workloads(name, view)
    if not workloads:
        return
    deletion = plan(workloads)
    if deletion.kept:
        raise CommandFailed(
            f"queue {name} has jobs of other workloads: {', '.join(sorted(deletion.kept))}",
            hint="delete these workloads first, then the queue",
        )
    warn(f"queue {name} has {describe_workloads(workloads)}; they are deleted")
    if (queue.get("status") or {}).get("state") == wellknown.QueueState.OPEN:
        # No new job joins meanwhile.
        client.create(COMMANDS, job_commands.command(queue, Action.CLOSE_QUEUE))
    for namespace, pod in deletion.pods:
        client.delete(PODS, pod, namespace=namespace, missing_ok=True)
    for resource, found in ((JOBS, deletion.jobs), (PODGROUPS, deletion.groups)):
        for each in found:
            namespace = each["metadata"]["namespace"]
            client.delete(resource, name_of(each), namespace=namespace, missing_ok=True)

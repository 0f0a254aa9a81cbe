"""The DNS names of a job's pods: `<host>.<subdomain>`, one per pod.

A template with a fixed host name has one address for all its pods, as in Volcano.
"""

from __future__ import annotations

from hekla.units.objects import Object


def host(job: Object, task: Object, index: int) -> str:
    """Return the host name of a pod."""
    fixed = task["template"].get("spec", {}).get("hostname")
    return str(fixed or f"{job['metadata']['name']}-{task.get('name')}-{index}")


def address(job: Object, task: Object, index: int) -> str:
    """Return the DNS name of a pod."""
    subdomain = task["template"].get("spec", {}).get("subdomain") or job["metadata"]["name"]
    return f"{host(job, task, index)}.{subdomain}"


def addresses(job: Object, task: Object | None) -> list[str]:
    """Return all addresses of a task; none for a missing task."""
    if task is None:
        return []
    count = int(task.get("replicas") or 0)
    if task["template"].get("spec", {}).get("hostname"):
        count = min(count, 1)
    return [address(job, task, index) for index in range(count)]

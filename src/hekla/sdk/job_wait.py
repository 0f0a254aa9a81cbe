"""Wait until a job reaches a phase, over watches that may end at any time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from hekla.kube.errors import Gone, NotFound, TransportError
from hekla.kube.resources import JOBS, Resource
from hekla.kube.sync_client import SyncClient
from hekla.sdk import job_phases, timeouts
from hekla.sdk.outages import Outage
from hekla.units.objects import Object

# The server ends a watch after this time, so that a dead connection is noticed.
WATCH_S = 290.0


class JobEnded(Exception):
    """The job finished in another phase than the awaited one; `job` is its last state.

    Example:
        try:
            job.wait("Running")
        except JobEnded as error:
            print(error.job["status"])
    """

    def __init__(self, job: Object) -> None:
        name = f"{job['metadata']['namespace']}/{job['metadata']['name']}"
        super().__init__(f"job {name} finished as {job_phases.phase_of(job)}")
        self.job = job


def states(
    client: SyncClient,
    resource: Resource[Object],
    name: str,
    *,
    namespace: str | None = None,
    timeout_s: float | None = None,
) -> Iterator[Object]:
    """Yield an object and each later state of it, until it is deleted.

    Raise TimeoutError after `timeout_s`, and NotFound if the object does not exist.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    version, is_known = "", False
    outage = Outage()
    while True:
        left_s = WATCH_S if deadline is None else min(WATCH_S, deadline - time.monotonic())
        if is_known and left_s <= 0:
            raise TimeoutError(f"{name} did not reach the phase within {timeout_s:g} s")
        try:
            if not version:
                obj = client.get(resource, name, namespace=namespace)
                outage.reached()
                version, is_known = obj["metadata"]["resourceVersion"], True
                yield obj
                continue
            with client.watch(
                resource,
                namespace=namespace,
                field_selector=f"metadata.name={name}",
                resource_version=version,
                timeout_s=max(1, round(left_s)),
            ) as events:
                for event in events:
                    version = events.resource_version
                    if event.type == "DELETED":
                        return
                    yield event.object
                version = events.resource_version
        except Gone:
            version = ""
        except TransportError as error:
            version = ""
            time.sleep(outage.pause_s(error))


def wait(
    client: SyncClient,
    name: str,
    *,
    namespace: str | None = None,
    until: str = job_phases.FINISHED,
    timeout_s: float | None = None,
) -> Object:
    """Return the job when it meets `until`; raise JobEnded if it cannot, NotFound if deleted.

    Raise TimeoutError with the reasons after `timeout_s`.
    """
    where = namespace or client.namespace
    try:
        for job in states(client, JOBS, name, namespace=namespace, timeout_s=timeout_s):
            if job_phases.is_reached(job, until):
                return job
            if job_phases.is_unreachable(job, until):
                raise JobEnded(job)
    except TimeoutError:
        raise timed_out(
            name, until, timeout_s, timeouts.reasons(client.config, where, name)
        ) from None
    raise NotFound(404, "NotFound", f'jobs.batch.volcano.sh "{name}" was deleted')


def timed_out(
    name: str, until: str, timeout_s: float | None, reasons: Sequence[str]
) -> TimeoutError:
    """Return the error of a wait that took too long."""
    wanted = f"is not {until}" if until in job_phases.CONDITIONS else f"is not in phase {until}"
    return timeouts.timed_out(f"job {name} {wanted} after {timeout_s or 0:g} s", reasons)

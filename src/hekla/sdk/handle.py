"""Submitted jobs: JobHandle. For asyncio see `hekla.sdk.async_handle`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Literal

from hekla.api.wellknown import Action
from hekla.kube import cluster_choice
from hekla.kube.errors import AlreadyExists
from hekla.kube.kubeconfig import ClusterConfig
from hekla.kube.resources import COMMANDS, JOBS, PODGROUPS, PODS, QUEUES
from hekla.kube.sync_client import SyncClient
from hekla.sdk import attempts, job_commands, job_phases, job_retry, job_wait, validation
from hekla.sdk.array_status import ArrayStatus, array_status
from hekla.sdk.builders import Queue
from hekla.sdk.explanation import Explanation, explanation, queue_of
from hekla.sdk.logs import LogLine, job_logs
from hekla.sdk.manifests import A_QUEUE, as_manifest, raise_if_invalid
from hekla.sdk.notebook import JobList, jobs_html
from hekla.units.objects import Object


def default_client() -> SyncClient:
    """Return a client of the cluster that the commands use: see `hekla.kube.cluster_choice`."""
    return SyncClient(cluster_choice.find(), component="sdk")


def create_queue(queue: Queue | Object, *, client: SyncClient | None = None) -> Object:
    """Create a queue and return the stored object.

    Example:
        create_queue(Queue("ml", weight=3))
    """
    client = client or default_client()
    manifest = as_manifest(queue, wanted=A_QUEUE)
    raise_if_invalid(manifest, validation.ClusterView(client))
    return client.create(QUEUES, manifest)


def list_jobs(
    *,
    namespace: str | None = None,
    all_namespaces: bool = False,
    queue: str = "",
    phase: str = "",
    labels: str = "",
    client: SyncClient | None = None,
) -> JobList:
    """Return the jobs of a namespace, sorted by name; `labels` is a selector such as `team=ml`.

    `phase` may name several: `Pending,Running`; ValueError for one that does not exist. The
    list is shown as a table in a notebook.

    Example:
        for job in list_jobs(queue="ml", phase="Running"):
            print(job.name)
    """
    client = client or default_client()
    where = None if all_namespaces else namespace or client.namespace
    phases = job_phases.known_phases(phase)
    jobs = (
        JobHandle(client, job)
        for job in client.list(JOBS, namespace=where, label_selector=labels)
        if is_wanted(job, queue, phases)
    )
    return JobList(sorted(jobs, key=lambda job: (job.namespace, job.name)))


def is_wanted(job: Object, queue: str, phases: Sequence[str]) -> bool:
    """Return whether a job is in a queue and in one of some phases; empty means any."""
    is_in_queue = not queue or queue_of(job) == queue
    return is_in_queue and (not phases or job_phases.phase_of(job) in phases)


class JobHandle:
    """A job on a cluster; `object` is its last known state, `refresh` reads it again.

    Example:
        job = JobHandle.of("hello")
        for line in job.logs(follow=True):
            print(line)
    """

    def __init__(self, client: SyncClient, job: Object) -> None:
        self._client = client
        self.object = job

    @classmethod
    def of(
        cls, name: str, *, namespace: str | None = None, client: SyncClient | None = None
    ) -> JobHandle:
        """Return the handle of an existing job."""
        client = client or default_client()
        return cls(client, client.get(JOBS, name, namespace=namespace))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.namespace}/{self.name}: {self.phase})"

    def _repr_html_(self) -> str:
        return jobs_html([self.object])

    @property
    def config(self) -> ClusterConfig:
        """The cluster of the job."""
        return self._client.config

    @property
    def name(self) -> str:
        """The name of the job."""
        return str(self.object["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """The namespace of the job."""
        return str(self.object["metadata"]["namespace"])

    @property
    def phase(self) -> str:
        """The phase when the job was last read."""
        return job_phases.phase_of(self.object)

    def refresh(self) -> Object:
        """Read the job again and return it."""
        self.object = self._client.get(JOBS, self.name, namespace=self.namespace)
        return self.object

    def wait(self, until: str = job_phases.FINISHED, *, timeout_s: float | None = None) -> str:
        """Block until the job is `finished`, `started` or in the given phase; return its phase.

        Raise JobEnded if it finished in another phase, TimeoutError with the reasons after
        `timeout_s`.
        """
        self.object = job_wait.wait(
            self._client, self.name, namespace=self.namespace, until=until, timeout_s=timeout_s
        )
        return self.phase

    def logs(
        self, *, follow: bool = False, task: str = "", attempt: int | Literal["all"] | None = None
    ) -> Iterator[LogLine]:
        """Yield the output of its pods line by line; with `follow` until the job has ended.

        `attempt` is the number of a retry, counted from 1, or `all`; without it, the last.
        """
        if attempt is not None:
            wanted = None if attempt == "all" else attempt
            return attempts.attempt_lines(self._client, self.refresh(), wanted, task=task)
        return job_logs(self._client, self.name, namespace=self.namespace, follow=follow, task=task)

    def pods(self) -> list[Object]:
        """Return the pods of the job."""
        listed = self._client.list(
            PODS, namespace=self.namespace, label_selector=job_commands.pods_selector(self.name)
        )
        return listed.items

    def explain(self) -> Explanation:
        """Return why the job is pending, running or failed, and what to do next."""
        job = self.refresh()
        return explanation(
            job,
            self._client.find(PODGROUPS, job_commands.group_name(job), namespace=self.namespace),
            self._client.find(QUEUES, queue_of(job)),
            self.pods(),
        )

    def suspend(self) -> None:
        """Suspend the job: the controller terminates its pods and keeps the job."""
        self._command(Action.ABORT_JOB)

    def resume(self) -> None:
        """Resume a suspended job."""
        self._command(Action.RESUME_JOB)

    def scale(self, replicas: int, *, task: str = "", min_available: int | None = None) -> None:
        """Set the replicas of a task; `task` is optional for a job with one task."""
        patch = job_commands.scale_patch(
            self.refresh(), replicas, task=task, min_available=min_available
        )
        self.object = self._client.patch(
            JOBS, self.name, patch, namespace=self.namespace, kind="json"
        )

    def array_status(self) -> ArrayStatus | None:
        """Return the indices of an array by state; None for another job."""
        return array_status(self.refresh(), job_commands.owned(self.object, self.pods()))

    def retry(self) -> JobHandle:
        """Run a failed job again, of an array only the indices that did not succeed.

        Raise CannotRetry if it has not failed.
        """
        job = self.refresh()
        manifest = job_retry.retry_of(job, job_commands.owned(job, self.pods()))
        for name in job_retry.names(job):
            manifest["metadata"]["name"] = name
            with suppress(AlreadyExists):
                created = self._client.create(JOBS, manifest, namespace=self.namespace)
                return JobHandle(self._client, created)
        raise job_retry.no_free_name(job)

    def delete(self) -> None:
        """Delete the job and its pods."""
        self._client.delete(JOBS, self.name, namespace=self.namespace)

    def _command(self, action: str) -> None:
        self._client.create(COMMANDS, job_commands.command(self.object, action))

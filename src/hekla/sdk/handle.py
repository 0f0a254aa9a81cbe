"""A submitted job, and `submit` that makes one. For asyncio see `asynchronous`."""

from __future__ import annotations

from collections.abc import Iterator

from hekla.api.wellknown import Action
from hekla.kube import kubeconfig
from hekla.kube.errors import Invalid
from hekla.kube.resources import COMMANDS, JOBS, PODS, QUEUES
from hekla.kube.sync_client import SyncClient
from hekla.sdk import job_commands, job_phases, job_wait, validation
from hekla.sdk.builders import Job, Queue
from hekla.sdk.logs import LogLine, job_logs
from hekla.units.objects import Object


def default_client() -> SyncClient:
    """A client of the cluster that kubectl would talk to."""
    return SyncClient(kubeconfig.load(), component="sdk")


def as_manifest(what: Job | Queue | Object) -> Object:
    return what if isinstance(what, dict) else what.manifest()


def refuse_if_wrong(manifest: Object, view: validation.ClientView) -> None:
    """Raise Invalid, with every problem named, for what the rules refuse."""
    found = validation.problems(manifest, view)
    if found:
        kind, name = manifest.get("kind", ""), manifest.get("metadata", {}).get("name", "")
        text = "; ".join(str(one) for one in found)
        causes = [{"field": one.field, "message": one.body, "reason": one.type} for one in found]
        raise Invalid(
            422, "Invalid", f'{kind} "{name}" is invalid: {text}', details={"causes": causes}
        )


def submit(
    job: Job | Object,
    *,
    namespace: str | None = None,
    client: SyncClient | None = None,
    check: bool = True,
) -> JobHandle:
    """Store a job, built or as a manifest, and return a handle on it at once."""
    client = client or default_client()
    manifest = as_manifest(job)
    if check:
        refuse_if_wrong(manifest, validation.ClientView(client))
    return JobHandle(client, client.create(JOBS, manifest, namespace=namespace))


def create_queue(queue: Queue | Object, *, client: SyncClient | None = None) -> Object:
    """Store a queue; the object as the server completed it."""
    client = client or default_client()
    manifest = as_manifest(queue)
    refuse_if_wrong(manifest, validation.ClientView(client))
    return client.create(QUEUES, manifest)


class JobHandle:
    """One job on one cluster. `object` is its last known state; `refresh` reads it anew."""

    def __init__(self, client: SyncClient, job: Object) -> None:
        self._client = client
        self.object = job

    @classmethod
    def of(
        cls, name: str, *, namespace: str | None = None, client: SyncClient | None = None
    ) -> JobHandle:
        """A handle on a job that is already there."""
        client = client or default_client()
        return cls(client, client.get(JOBS, name, namespace=namespace))

    def __repr__(self) -> str:
        return f"JobHandle({self.namespace}/{self.name}: {self.phase})"

    @property
    def name(self) -> str:
        return str(self.object["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.object["metadata"]["namespace"])

    @property
    def phase(self) -> str:
        """As last seen."""
        return job_phases.phase_of(self.object)

    def refresh(self) -> Object:
        self.object = self._client.get(JOBS, self.name, namespace=self.namespace)
        return self.object

    def wait(self, until: str = job_phases.FINISHED, *, timeout_s: float | None = None) -> str:
        """Block until the job is `finished`, `started` or in a phase; returns its phase.

        JobEnded if it ended in another way, TimeoutError if time is up.
        """
        self.object = job_wait.wait(
            self._client, self.name, namespace=self.namespace, until=until, timeout_s=timeout_s
        )
        return self.phase

    def logs(self, *, follow: bool = False, task: str = "") -> Iterator[LogLine]:
        """The output of its pods, line by line; with `follow` until the job has finished."""
        return job_logs(self._client, self.name, namespace=self.namespace, follow=follow, task=task)

    def pods(self) -> list[Object]:
        found = self._client.list(
            PODS, namespace=self.namespace, label_selector=job_commands.pods_selector(self.name)
        )
        return found.items

    def suspend(self) -> None:
        """Ask the controller to stop its pods and keep the job."""
        self._command(Action.ABORT_JOB)

    def resume(self) -> None:
        self._command(Action.RESUME_JOB)

    def scale(self, replicas: int, *, task: str = "", min_available: int | None = None) -> None:
        """Give a task another size; a job with one task needs no `task`."""
        patch = job_commands.scale_patch(
            self.refresh(), replicas, task=task, min_available=min_available
        )
        self.object = self._client.patch(
            JOBS, self.name, patch, namespace=self.namespace, kind="json"
        )

    def delete(self) -> None:
        self._client.delete(JOBS, self.name, namespace=self.namespace)

    def _command(self, action: str) -> None:
        self._client.create(COMMANDS, job_commands.command(self.object, action))

"""`submit` and `submit_async`: a builder, a manifest or a function becomes a job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from hekla.kube.client import Client
from hekla.kube.errors import KubeError
from hekla.kube.resources import JOBS, SECRETS
from hekla.kube.sync_client import SyncClient
from hekla.sdk import async_clients, validation
from hekla.sdk.async_handle import AsyncJobHandle
from hekla.sdk.builders import Job, Task
from hekla.sdk.functions.calls import Calls, call_job, owned_by
from hekla.sdk.functions.function_job import AsyncFunctionJob, FunctionJob
from hekla.sdk.handle import JobHandle, default_client
from hekla.sdk.manifests import as_manifest, raise_if_invalid, raise_if_unknown
from hekla.units.objects import Object

T = TypeVar("T")


@overload
def submit(
    job: Job | Object,
    *,
    namespace: str | None = None,
    client: SyncClient | None = None,
    check: bool = True,
) -> JobHandle: ...


@overload
def submit(
    job: Callable[..., T],
    *arguments: Any,
    task: Task | None = None,
    queue: str = "",
    name: str = "",
    namespace: str | None = None,
    client: SyncClient | None = None,
    check: bool = True,
) -> FunctionJob[T]: ...


def submit(
    job: Job | Object | Callable[..., Any],
    *arguments: Any,
    task: Task | None = None,
    queue: str = "",
    name: str = "",
    namespace: str | None = None,
    client: SyncClient | None = None,
    check: bool = True,
) -> JobHandle:
    """Create a job and return its handle at once.

    A job is a builder, a manifest, or a function with its arguments. A function runs in a pod with
    the resources of `task`; `functools.partial` gives it keyword arguments, and `result()` of the
    handle returns what it returned.

    Raise Invalid for unknown fields and broken rules; `check=False` leaves that to the server.

    Example:
        job = submit(Job("hello", [Task(command="echo hi")]))
        assert job.wait() == "Completed"
        assert submit(pow, 2, 10, task=Task(cpu=1)).result() == 1024
    """
    client = client or default_client()
    if not callable(job):
        _refuse_arguments(arguments, task=task, queue=queue, name=name)
        manifest = as_manifest(job)
        if check:
            raise_if_invalid(manifest, validation.ClusterView(client))
        return JobHandle(client, client.create(JOBS, manifest, namespace=namespace))
    manifest, secret = call_job(
        Calls(job, [(arguments, {})]),
        task or Task(),
        Job(name, queue=queue),
        is_local=client.config.is_loopback,
    )
    if check:
        raise_if_invalid(manifest, validation.ClusterView(client))
    return FunctionJob(client, create_call(client, manifest, secret, namespace))


@overload
async def submit_async(
    job: Job | Object,
    *,
    namespace: str | None = None,
    client: Client | None = None,
    check: bool = True,
) -> AsyncJobHandle: ...


@overload
async def submit_async(
    job: Callable[..., T],
    *arguments: Any,
    task: Task | None = None,
    queue: str = "",
    name: str = "",
    namespace: str | None = None,
    client: Client | None = None,
    check: bool = True,
) -> AsyncFunctionJob[T]: ...


async def submit_async(
    job: Job | Object | Callable[..., Any],
    *arguments: Any,
    task: Task | None = None,
    queue: str = "",
    name: str = "",
    namespace: str | None = None,
    client: Client | None = None,
    check: bool = True,
) -> AsyncJobHandle:
    """Create a job from a builder, a manifest or a function and return its handle at once.

    The cluster and the parameters are those of `submit`. Raise Invalid for unknown fields, unless
    `check=False`, and for rules that the server finds broken.

    Example:
        job = await submit_async(Job("hello", [Task(command="echo hi")]))
        assert await job.wait() == "Completed"
    """
    client = client or await async_clients.default_client()
    if not callable(job):
        _refuse_arguments(arguments, task=task, queue=queue, name=name)
        manifest = as_manifest(job)
        if check:
            raise_if_unknown(manifest)
        return AsyncJobHandle(client, await client.create(JOBS, manifest, namespace=namespace))
    manifest, secret = call_job(
        Calls(job, [(arguments, {})]),
        task or Task(),
        Job(name, queue=queue),
        is_local=client.config.is_loopback,
    )
    if check:
        raise_if_unknown(manifest)
    created = await client.create(JOBS, manifest, namespace=namespace)
    where = created["metadata"]["namespace"]
    try:
        await client.create(SECRETS, owned_by(secret, created), namespace=where)
    except KubeError:
        await client.delete(JOBS, created["metadata"]["name"], namespace=where)
        raise
    return AsyncFunctionJob(client, created)


def create_call(
    client: SyncClient, manifest: Object, secret: Object, namespace: str | None
) -> Object:
    """Create the job of a call, then its Secret: pods wait for it, and it is deleted with the job.

    If the Secret is refused, the job is deleted.
    """
    created = client.create(JOBS, manifest, namespace=namespace)
    where = created["metadata"]["namespace"]
    try:
        client.create(SECRETS, owned_by(secret, created), namespace=where)
    except KubeError:
        client.delete(JOBS, created["metadata"]["name"], namespace=where)
        raise
    return created


def _refuse_arguments(arguments: tuple[Any, ...], **given: Any) -> None:
    names = [name for name, value in given.items() if value]
    if arguments or names:
        what = ", ".join(names) or f"{len(arguments)} arguments"
        raise TypeError(f"{what}: only for a function; a job has its own")

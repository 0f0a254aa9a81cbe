"""`hekla run`: jobs from manifest to outcome, on the cluster that is up or one of our own."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
import uvloop
import yaml

from hekla.api.wellknown import BATCH_API, JobPhase, PodPhase
from hekla.cli.running import default_data_dir, running_pid
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.errors import ApiError, KubeError
from hekla.kube.informers import Informer
from hekla.kube.resources import JOBS, PODS, resource

Object = dict[str, Any]
ENDS = {*JobPhase.FINISHED, JobPhase.ABORTED}
"""A job that a policy aborted can be resumed, but nobody here will."""


def run(data_dir: Path | None, files: Sequence[Path], *, host_images: bool = False) -> int:
    """Run jobs on the cluster that is up, or on one made for the purpose."""
    objects = [obj for file in files for obj in read_manifests(file)]
    where = data_dir or default_data_dir()
    try:
        if running_pid(where) is not None:
            return uvloop.run(_submit(where / "kubeconfig", objects))
        with contextlib.ExitStack() as stack:
            if data_dir is None:
                data_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hekla-")))
            return uvloop.run(_run(data_dir, objects, host_images=host_images))
    except (KubeError, OSError) as error:
        raise click.ClickException(str(error)) from error


def read_manifests(path: Path) -> list[Object]:
    try:
        documents = list(yaml.safe_load_all(path.read_text()))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{path} is not YAML: {error}") from error
    objects = [document for document in documents if document]
    for obj in objects:
        if not isinstance(obj, dict) or not obj.get("apiVersion") or not obj.get("kind"):
            raise click.ClickException(f"{path}: every document needs apiVersion and kind")
    return objects


async def _run(data_dir: Path, objects: list[Object], *, host_images: bool) -> int:
    # The whole cluster is imported only where one is to be started.
    from hekla.apiserver.server import AlreadyRunning
    from hekla.apiserver.store import StoreError
    from hekla.local import LocalConfig, cluster
    from hekla.nodeagent.images import ImagesError

    try:
        async with cluster(LocalConfig(data_dir, host_images=host_images)) as server:
            return await _submit(server.kubeconfig, objects)
    except (AlreadyRunning, ImagesError, StoreError) as error:
        raise click.ClickException(str(error)) from error


async def _submit(path: Path, objects: list[Object]) -> int:
    async with Client(kubeconfig.load(path), component="run") as client:
        return await Runner(client).run(objects)


class Runner:
    """Submits jobs, shows what happens to them, and waits for their end."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._watched: set[str] = set()
        self._tails: set[asyncio.Task[None]] = set()
        self._phases: dict[str, str] = {}
        self._changed = asyncio.Event()

    async def run(self, objects: list[Object]) -> int:
        jobs = set()
        for obj in objects:
            made = await self._submit(obj)
            if obj["kind"] == "Job" and obj["apiVersion"] == BATCH_API:
                jobs.add(made["metadata"]["uid"])
        async with (
            Informer(self._client, JOBS, dict) as job_informer,
            Informer(self._client, PODS, dict) as pod_informer,
        ):
            job_informer.add_handler(self._on_job)
            pod_informer.add_handler(self._on_pod)
            while not jobs <= {uid for uid, phase in self._phases.items() if phase in ENDS}:
                await self._changed.wait()
                self._changed.clear()
            await asyncio.gather(*self._tails)
        return 0 if all(self._phases[uid] == JobPhase.COMPLETED for uid in jobs) else 1

    async def _submit(self, obj: Object) -> Object:
        handle = await self._resource(obj)
        made: Object = await self._client.create(handle, obj)
        click.echo(f"{handle}/{made['metadata']['name']} created")
        return made

    async def _resource(self, obj: Object) -> Any:
        """The resource of a kind, as the server tells it."""
        version, kind = obj["apiVersion"], obj["kind"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        try:
            listed = msgspec.json.decode(await self._client.request("GET", root))
        except ApiError as error:
            raise click.ClickException(f"{kind}: this cluster has no {version}") from error
        for one in listed["resources"]:
            if one["kind"] == kind and "/" not in one["name"]:
                return resource(version, one["name"], kind=kind, namespaced=one["namespaced"])
        raise click.ClickException(f"this cluster has no kind {kind} in {version}")

    def _on_job(self, _: str, __: Object | None, job: Object | None) -> None:
        if job is None:
            return
        phase = (job.get("status") or {}).get("state", {}).get("phase", "")
        uid = job["metadata"]["uid"]
        if phase and phase != self._phases.get(uid):
            self._phases[uid] = phase
            click.echo(f"job {job['metadata']['name']}: {phase}")
            self._changed.set()

    def _on_pod(self, _: str, __: Object | None, pod: Object | None) -> None:
        if pod is None or pod["metadata"]["uid"] in self._watched:
            return
        if (pod.get("status") or {}).get("phase") in (None, PodPhase.PENDING):
            return
        self._watched.add(pod["metadata"]["uid"])
        task = asyncio.create_task(self._tail(pod))
        self._tails.add(task)

    async def _tail(self, pod: Object) -> None:
        metadata = pod["metadata"]
        for container in pod["spec"]["containers"]:
            try:
                await self._tail_container(metadata, container)
            except KubeError as error:  # the job goes on, seen or not
                click.echo(f"{metadata['name']} | (output cannot be read: {error})")

    async def _tail_container(self, metadata: Object, container: Object) -> None:
        rest = b""
        async with self._client.logs(
            metadata["name"],
            namespace=metadata["namespace"],
            container=container["name"],
            follow=True,
        ) as chunks:
            async for chunk in chunks:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    click.echo(f"{metadata['name']} | {line.decode(errors='replace')}")
        if rest:
            click.echo(f"{metadata['name']} | {rest.decode(errors='replace')}")

"""`hekla up` and `hekla run`: a cluster on this machine, and jobs on it."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
import uvloop
import yaml

from hekla.api.wellknown import BATCH_API, JobPhase, PodPhase
from hekla.apiserver.server import AlreadyRunning
from hekla.apiserver.store import StoreError
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.errors import ApiError, KubeError
from hekla.kube.informers import Informer
from hekla.kube.resources import JOBS, NODES, PODS, resource
from hekla.kube.sync_client import SyncClient
from hekla.local import LocalConfig, cluster, default_data_dir
from hekla.nodeagent import sandbox
from hekla.nodeagent.cgroups import Cgroups
from hekla.nodeagent.images import ImagesError

Object = dict[str, Any]
PID_FILE = "hekla.pid"

READY_WITHIN_S = 30.0
DOWN_WITHIN_S = 60.0
NOT_RUNNING = 3
"""The exit code of `status` when nothing runs, as for any service."""


def up(data_dir: Path | None, *, detach: bool, **options: Any) -> None:
    where = data_dir or default_data_dir()
    if detach:
        _detach(where, options)
        return
    agent = not options.pop("no_agent")
    config = LocalConfig(where, agent=agent, **options)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        uvloop.run(_up(config))
    except (AlreadyRunning, ImagesError, StoreError, OSError) as error:
        raise click.ClickException(str(error)) from error


async def _up(config: LocalConfig) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stopping.set)
    async with cluster(config) as server:
        (config.data_dir / PID_FILE).write_text(str(os.getpid()))
        # What start-up built lives as long as the cluster: keep the collector from walking it.
        gc.collect()
        gc.freeze()
        click.echo(_welcome(server.address, server.kubeconfig))
        await stopping.wait()
        click.echo("stopping: pods first")


def _welcome(address: str, path: Path) -> str:
    return (
        f"hekla is up at {address}\n"
        f"  export KUBECONFIG={path}\n"
        "  kubectl get nodes          # or any other Kubernetes client\n"
        "  hekla run JOB.yaml         # run a job and see its output\n"
        "  hekla down                 # stop it"
    )


def _detach(where: Path, options: dict[str, Any]) -> None:
    """Start another process of ourselves and wait until it serves."""
    where.mkdir(parents=True, exist_ok=True, mode=0o700)
    words = [sys.executable, "-m", "hekla.cli.main", "up", "--data-dir", str(where)]
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            words.append(flag)
        elif value:
            words += [flag, str(value)]
    log = where / "hekla.log"
    with log.open("ab") as output:
        child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        if child.poll() is not None:
            last = log.read_text(errors="replace").strip().splitlines()[-1:]
            raise click.ClickException("".join(last) or f"it did not start; see {log}")
        if _pid(where) == child.pid:
            config = kubeconfig.load(where / "kubeconfig")
            click.echo(_welcome(config.server, where / "kubeconfig"))
            return
        time.sleep(0.02)
    raise click.ClickException(f"it is not ready after {READY_WITHIN_S:.0f} s; see {log}")


def _pid(where: Path) -> int | None:
    """The process that runs the cluster in a directory, if one does."""
    try:
        pid = int((where / PID_FILE).read_text())
        with (where / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return pid
    except (OSError, ValueError):
        return None
    return None


def down(data_dir: Path | None) -> None:
    where = data_dir or default_data_dir()
    pid = _pid(where)
    if pid is None:
        click.echo(f"no cluster is running in {where}")
        return
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + DOWN_WITHIN_S
    while _pid(where) is not None:
        if time.monotonic() > deadline:
            raise click.ClickException(
                f"process {pid} is still stopping its pods after {DOWN_WITHIN_S:.0f} s; "
                "wait, or kill it: pods that run then are taken up by the next `hekla up`"
            )
        time.sleep(0.02)
    click.echo("hekla is down")


def status(data_dir: Path | None) -> int:
    where = data_dir or default_data_dir()
    pid = _pid(where)
    if pid is None:
        click.echo(f"no cluster is running in {where}; start one with `hekla up`")
        return NOT_RUNNING
    config = kubeconfig.load(where / "kubeconfig")
    client = SyncClient(config)
    pods = client.list(PODS).items
    phases = Counter((pod.get("status") or {}).get("phase", "Unknown") for pod in pods)
    click.echo(f"hekla is up at {config.server} (process {pid})")
    click.echo(f"  data      {where}")
    click.echo(f"  nodes     {len(client.list(NODES).items)}")
    click.echo("  pods      " + (", ".join(f"{n} {p}" for p, n in phases.items()) or "none"))
    able, version = sandbox.abilities(), Cgroups().version
    isolation = "namespaces: volumes at their paths, names of pods, nothing left behind"
    if not able.namespaces:
        isolation = f"none ({able.why_not}): pods see this machine as it is"
    limits = f"cgroups v{version}: memory, CPU and process limits hold"
    if not version:
        limits = "none: this user may not write cgroups, so limits are not enforced"
    click.echo(f"  isolation {isolation}")
    click.echo(f"  limits    {limits}")
    return 0


def run(data_dir: Path | None, files: Sequence[Path], *, host_images: bool = False) -> int:
    """Run jobs on the cluster that is up, or on one made for the purpose."""
    objects = [obj for file in files for obj in read_manifests(file)]
    where = data_dir or default_data_dir()
    try:
        if _pid(where) is not None:
            return uvloop.run(_submit(where / "kubeconfig", objects))
        with contextlib.ExitStack() as stack:
            if data_dir is None:
                data_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hekla-")))
            config = LocalConfig(data_dir, host_images=host_images)
            return uvloop.run(_run(config, objects))
    except (KubeError, AlreadyRunning, ImagesError, StoreError, OSError) as error:
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


async def _run(config: LocalConfig, objects: list[Object]) -> int:
    async with cluster(config) as server:
        return await _submit(server.kubeconfig, objects)


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
            while not jobs <= {u for u, p in self._phases.items() if p in JobPhase.FINISHED}:
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

"""`hekla run`: run jobs from manifests or from a command line until they finish.

The jobs run on the cluster of this machine, or on a temporary one that ends with the run.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import uvloop

from hekla.cli import terminal
from hekla.cli.data_dir import default_data_dir, running_pid
from hekla.cli.job_follower import INTERRUPTED, Aborted, Detached, JobFollower, is_followed
from hekla.cli.progress import Jobs, LiveScreen, PlainScreen, Screen
from hekla.cli.vcctl.options import plugins_of
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.errors import KubeError
from hekla.sdk.builders import Job, Task
from hekla.sdk.validation import unknown_fields
from hekla.units import bounded_yaml
from hekla.units.clock import SystemClock
from hekla.units.objects import Object

HOST_IMAGE = "host"
MAX_STEM = 40


@dataclass(frozen=True)
class CommandLine:
    """A command to run as a job."""

    words: Sequence[str]
    name: str = ""
    image: str = HOST_IMAGE
    replicas: int = 1
    cpu: str | None = None
    memory: str | None = None
    gpu: str | None = None
    queue: str = ""
    plugins: dict[str, list[str]] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)

    def job(self) -> Object:
        """Return the job: it runs in this directory, with this PATH."""
        env = dict(self.env)
        if self.image == HOST_IMAGE:
            env.setdefault("PATH", os.environ.get("PATH", os.defpath))
        task = Task(
            "worker",
            image=self.image,
            command=list(self.words),
            replicas=self.replicas,
            cpu=self.cpu,
            memory=self.memory,
            gpu=self.gpu,
            env=env,
            working_dir=str(Path.cwd()),
        )
        job = Job(
            self.name or _job_name(self.words), [task], queue=self.queue, plugins=self.plugins
        )
        return job.manifest()


def _job_name(words: Sequence[str]) -> str:
    """Return a job name such as `train-x7k2q` for `python train.py`: a stem and a random suffix."""
    shells = ("python", "python3", "sh", "bash", "env")
    telling = [word for word in words if not word.startswith("-")]
    word = next((w for w in telling if Path(w).name not in shells), telling[0] if telling else "")
    first = (word.split() or [""])[0]  # of `sh -c 'some text'`
    stem = re.sub(r"[^a-z0-9]+", "-", Path(first).stem.lower()).strip("-")[:MAX_STEM].strip("-")
    stem = stem if stem[:1].isalpha() else f"run-{stem}".strip("-")
    return f"{stem}-{secrets.token_hex(3)[:5]}"


def run(
    data_dir: Path | None,
    files: Sequence[Path],
    words: Sequence[str] = (),
    *,
    host_images: bool = False,
    replace: bool = False,
    **options: Any,
) -> int:
    """Run jobs on the running cluster or on a temporary one; return the exit code."""
    if bool(files) == bool(words):
        raise click.UsageError("give manifests, or a command after `--`")
    objects = [obj for file in files for obj in read_manifests(file)]
    for obj in objects:
        for message in unknown_fields(obj):
            terminal.echo(f"Warning: {message}", err=True)
    if words:
        objects.append(_command_line(words, **options).job())
    request = _RunRequest(objects, replace=replace, is_command=bool(words))
    where = data_dir or default_data_dir()
    try:
        if running_pid(where) is not None:
            return uvloop.run(_follow(where / "kubeconfig", request, can_detach=True))
        if not any(map(is_followed, objects)):
            raise click.ClickException(
                "the manifests contain no job, and no cluster is running to apply them to; "
                "`hekla up -d` starts one"
            )
        with contextlib.ExitStack() as stack:
            if data_dir is None:
                data_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hekla-")))
            return uvloop.run(_run_on_temporary_cluster(data_dir, request, host_images=host_images))
    except (KubeError, OSError) as error:
        raise click.ClickException(str(error)) from error


@dataclass(frozen=True)
class _RunRequest:
    """The objects to run, and how."""

    objects: list[Object]
    replace: bool
    is_command: bool


def _command_line(
    words: Sequence[str], *, plugins: Sequence[str] = (), env: Sequence[str] = (), **options: Any
) -> CommandLine:
    variables = {}
    for text in env:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise click.UsageError(f"--env {text!r}: write KEY=VALUE")
        variables[key] = value
    return CommandLine(words, plugins=plugins_of(plugins), env=variables, **options)


def read_manifests(path: Path) -> list[Object]:
    try:
        documents = bounded_yaml.load_all(path.read_text(), bounded_yaml.FILE)
    except (bounded_yaml.YAMLError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{path} is not YAML: {error}") from error
    objects = [document for document in documents if document]
    for obj in objects:
        if not isinstance(obj, dict) or not obj.get("apiVersion") or not obj.get("kind"):
            raise click.ClickException(f"{path}: every document needs apiVersion and kind")
    return objects


async def _run_on_temporary_cluster(
    data_dir: Path, request: _RunRequest, *, host_images: bool
) -> int:
    # The cluster's modules are imported only if one is started.
    from hekla.apiserver.server import AlreadyRunning
    from hekla.apiserver.storage.store import StoreError
    from hekla.local import LocalConfig, cluster
    from hekla.nodeagent.images import ImagesError

    try:
        # It exists for the one person who called it, and its pods use this person's files.
        config = LocalConfig(data_dir, host_images=host_images, pod_user="owner")
        async with cluster(config) as server:
            return await _follow(server.kubeconfig, request, can_detach=False)
    except (AlreadyRunning, ImagesError, StoreError) as error:
        raise click.ClickException(str(error)) from error


async def _follow(path: Path, request: _RunRequest, *, can_detach: bool) -> int:
    jobs = Jobs()
    async with Client(kubeconfig.load(path), component="run") as client:
        screen: Screen = PlainScreen(jobs)
        if sys.stdout.isatty():
            screen = LiveScreen(jobs, SystemClock().now)
        follower = JobFollower(client, screen, jobs, replace=request.replace, can_detach=can_detach)
        try:
            completed = await follower.run(request.objects)
        except Detached:
            names = " ".join(job["metadata"]["name"] for job in jobs.followed.values())
            screen.message(f"detached; `hekla job logs -f` and `hekla job wait` follow {names}")
            return 0
        except Aborted:
            return INTERRUPTED
        finally:
            screen.close()
    if completed:
        return 0
    return follower.exit_code if request.is_command else 1

"""`hekla run`: jobs from manifest, or from a command line, to outcome.

On the cluster that is up on this machine, or on one made for the purpose that ends with the run.
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
import yaml

from hekla.cli.data_dir import default_data_dir, running_pid
from hekla.cli.job_follower import INTERRUPTED, Aborted, Detached, Follower, has_end
from hekla.cli.progress import Jobs, LiveScreen, PlainScreen, Screen
from hekla.cli.vcctl.options import plugins_of
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.errors import KubeError
from hekla.sdk.builders import Job, Task
from hekla.units.clock import SystemClock
from hekla.units.objects import Object

HOST_IMAGE = "host"
MAX_STEM = 40


@dataclass(frozen=True)
class Line:
    """A command to run, and how."""

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
        """As the user would run it here: in this directory, with the programs on this PATH."""
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
        made = Job(
            self.name or _name_of(self.words), [task], queue=self.queue, plugins=self.plugins
        )
        return made.manifest()


def _name_of(words: Sequence[str]) -> str:
    """`python train.py` is `train-x7k2q`: the first word that tells something, and a fresh end."""
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
    **about: Any,
) -> int:
    """Run jobs on the cluster that is up, or on one made for the purpose."""
    if bool(files) == bool(words):
        raise click.UsageError("give manifests, or a command after `--`")
    objects = [obj for file in files for obj in read_manifests(file)]
    if words:
        objects.append(_line(words, **about).job())
    wants = _Wants(objects, replace=replace, is_line=bool(words))
    where = data_dir or default_data_dir()
    try:
        if running_pid(where) is not None:
            return uvloop.run(_follow(where / "kubeconfig", wants, can_detach=True))
        if not any(map(has_end, objects)):
            raise click.ClickException(
                "nothing here runs to an end, and no cluster is up that would keep it; "
                "`hekla up -d` starts one"
            )
        with contextlib.ExitStack() as stack:
            if data_dir is None:
                data_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hekla-")))
            return uvloop.run(_run(data_dir, wants, host_images=host_images))
    except (KubeError, OSError) as error:
        raise click.ClickException(str(error)) from error


@dataclass(frozen=True)
class _Wants:
    """What is to be run."""

    objects: list[Object]
    replace: bool
    is_line: bool


def _line(
    words: Sequence[str], *, plugins: Sequence[str] = (), env: Sequence[str] = (), **about: Any
) -> Line:
    variables = {}
    for text in env:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise click.UsageError(f"--env {text!r}: write KEY=VALUE")
        variables[key] = value
    return Line(words, plugins=plugins_of(plugins), env=variables, **about)


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


async def _run(data_dir: Path, wants: _Wants, *, host_images: bool) -> int:
    # The whole cluster is imported only where one is to be started.
    from hekla.apiserver.server import AlreadyRunning
    from hekla.apiserver.storage.store import StoreError
    from hekla.local import LocalConfig, cluster
    from hekla.nodeagent.images import ImagesError

    try:
        async with cluster(LocalConfig(data_dir, host_images=host_images)) as server:
            return await _follow(server.kubeconfig, wants, can_detach=False)
    except (AlreadyRunning, ImagesError, StoreError) as error:
        raise click.ClickException(str(error)) from error


async def _follow(path: Path, wants: _Wants, *, can_detach: bool) -> int:
    jobs = Jobs()
    async with Client(kubeconfig.load(path), component="run") as client:
        screen: Screen = PlainScreen(jobs)
        if sys.stdout.isatty():
            screen = LiveScreen(jobs, SystemClock().now)
        follower = Follower(client, screen, jobs, replace=wants.replace, can_detach=can_detach)
        try:
            well = await follower.run(wants.objects)
        except Detached:
            names = " ".join(job["metadata"]["name"] for job in jobs.followed.values())
            screen.say(f"the jobs go on; `hekla job logs -f` and `hekla job wait` follow {names}")
            return 0
        except Aborted:
            return INTERRUPTED
        finally:
            screen.close()
    if well:
        return 0
    return follower.exit_code if wants.is_line else 1

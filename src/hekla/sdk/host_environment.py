"""What a job uses of this machine: an environment, a snapshot of its code, inputs and outputs.

`prepare` does the work for `hekla run` and for Python; `HostEnvironment.apply` returns a task that
uses it. All of it works on this machine only: see `refuse_elsewhere`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hekla.api import wellknown
from hekla.api.wellknown import JobPhase
from hekla.kube.errors import Forbidden
from hekla.kube.kubeconfig import ClusterConfig
from hekla.kube.resources import NODES
from hekla.kube.sync_client import SyncClient
from hekla.sdk import environments, host_paths, job_commands, job_phases, snapshots
from hekla.sdk.builders import Task
from hekla.sdk.handle import default_client
from hekla.sdk.host_paths import HostPathError
from hekla.sdk.host_programs import HostProgram
from hekla.units.objects import Object

HOST_IMAGE = "host"
Say = Callable[[str], None]
Place = str | Path


@dataclass(frozen=True)
class Prepared:
    """The working directory and the variables of a command, and what it uses of the caches."""

    working_dir: str
    variables: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    """On the pods: the environment and the snapshot, which a clean-up must not remove."""
    outputs: tuple[Path, ...] = ()

    def program(self, name: str, env: Mapping[str, str]) -> HostProgram:
        """Return the program of a command that has these variables besides."""
        path = {"PATH": os.defpath, **self.variables, **env}["PATH"]
        return HostProgram(name, path, Path(self.working_dir))


@dataclass(frozen=True, kw_only=True)
class HostEnvironment:
    """An environment on this machine for tasks of image `host`.

    `requirements` names a requirements file, whose virtual environment is built once. With `sync` a
    task runs in a read-only snapshot of `workdir`. `inputs` must exist and `outputs` are created.

    Example:
        here = HostEnvironment(requirements="requirements.txt", sync=True, outputs=["results"])
        submit(Job("train", [here.apply(Task("worker", command="python train.py"))]))
    """

    requirements: Place = ""
    workdir: Place = ""
    sync: bool = False
    inputs: Sequence[Place] = ()
    outputs: Sequence[Place] = ()

    def apply(self, task: Task, *, client: SyncClient | None = None) -> Task:
        """Return the task with this environment; build what is missing.

        Raise HostPathError for another image, another machine, and paths that pods cannot use.
        """
        client = client or default_client()
        image = HOST_IMAGE if task.image == Task.image else task.image
        refuse_elsewhere(client.config, image, "HostEnvironment")
        nodes = HostNodes.of(client)
        nodes.refuse_without_processes("HostEnvironment")
        made = self.prepare(for_others=nodes.run_as_others, say=_to_stderr)
        if task.command and not isinstance(task.command, str):  # else a shell finds it
            made.program(task.command[0], task.env).check(
                for_others=nodes.run_as_others, say=_to_stderr
            )
        return replace(
            task,
            image=image,
            working_dir=made.working_dir,
            env={**made.variables, **task.env},
            annotations={**task.annotations, **made.annotations},
        )

    def prepare(self, *, for_others: bool, say: Say) -> Prepared:
        """Check and make everything; `for_others` if pods do not run as this user."""
        workdir = _workdir(self.workdir)
        inputs = [host_paths.input_path(each, for_others=for_others) for each in self.inputs]
        # Python does not show output at once if it does not write to a terminal.
        variables = {"PATH": os.environ.get("PATH", os.defpath), "PYTHONUNBUFFERED": "1"}
        marks: dict[str, str] = {}
        if self.sync:
            root = host_paths.cache_directory(for_others=for_others)
            results = [Path(each).expanduser().absolute() for each in self.outputs]
            snapshot = snapshots.take(workdir, root=root, without=results)
            workdir, marks[wellknown.RUN_SNAPSHOT] = snapshot.path, snapshot.key
            say(f"the job runs in a snapshot: {snapshot.path}")
        elif for_others and not host_paths.is_reachable(workdir):
            raise HostPathError(
                f"pods cannot enter {workdir}: they run as users of their namespace, which see no "
                "private directories and have a /tmp of their own; --sync runs the job in a copy, "
                "--workdir in another directory, and a cluster with --pod-user owner in this one"
            )
        if self.requirements:
            root = host_paths.cache_directory(for_others=for_others)
            built = environments.ensure(Path(self.requirements), root=root, say=say)
            variables |= built.variables(variables["PATH"])
            marks[wellknown.RUN_ENVIRONMENT] = built.key
        outputs = tuple(
            host_paths.output_directory(each, for_others=for_others) for each in self.outputs
        )
        variables |= _paths("HEKLA_INPUT", inputs) | _paths("HEKLA_OUTPUT", outputs)
        return Prepared(str(workdir), variables, marks, outputs)


def refuse_elsewhere(target: ClusterConfig | None, image: str, what: str) -> None:
    """Refuse what means this machine for a cluster elsewhere or another image."""
    if image != HOST_IMAGE:
        raise HostPathError(
            f"{what}: only for the image {HOST_IMAGE!r}, which is this machine; with image "
            f"{image!r} put the files into the image, or on a volume"
        )
    if target is not None and not target.is_loopback:
        raise HostPathError(
            f"{what}: means files of this machine, and the job would run on {target.server} of "
            f"{target.source}; build an image with them, or use a volume"
        )


@dataclass(frozen=True, slots=True)
class HostNodes:
    """What the nodes of a cluster on this machine share with it.

    Nodes of `hekla up` are processes of this machine; other clusters run on it in containers or
    virtual machines.
    """

    server: str
    users: frozenset[str]
    """Who pods run as on nodes of `hekla up`: `owner`, `namespace` or both."""
    foreign: bool
    """All nodes belong to another kind of cluster."""
    limitless: tuple[str, ...] = ()
    """Nodes of `hekla up` that do not enforce memory limits."""

    @classmethod
    def of(cls, client: SyncClient) -> HostNodes:
        """Read the nodes.

        A cluster whose nodes a user may not list has several users: its pods run as others.
        """
        try:
            nodes = client.list(NODES)
        except Forbidden:
            return cls(client.config.server, frozenset({"namespace"}), foreign=False)
        users: set[str] = set()
        known = 0
        limitless: list[str] = []
        for node in nodes:
            metadata = node["metadata"]
            notes = metadata.get("annotations") or {}
            user = notes.get(wellknown.POD_USER)
            if notes.get(wellknown.MEMORY_LIMITS) == "none":
                limitless.append(metadata["name"])
            users |= {user} if user else set()
            known += bool(user or wellknown.SIMULATED_NODE in (metadata.get("labels") or {}))
        is_foreign = bool(nodes) and not known
        return cls(client.config.server, frozenset(users), is_foreign, tuple(limitless))

    @property
    def run_as_others(self) -> bool:
        """Pods run as users other than the one of `hekla up`."""
        return "namespace" in self.users

    def refuse_without_processes(self, what: str) -> None:
        """Refuse what means files of this machine if no pod would see them."""
        if not self.users:
            raise HostPathError(
                f"{what}: means files of this machine, and no node of {self.server} runs pods "
                "as processes of this machine, as `hekla up` does; build an image, or use a volume"
            )


def keys_in_use(jobs: Iterable[Object]) -> frozenset[str]:
    """Return the environments and snapshots of unfinished jobs, which a clean-up must keep."""
    names = (wellknown.RUN_ENVIRONMENT, wellknown.RUN_SNAPSHOT)
    templates = (
        task.get("template") or {}
        for job in jobs
        if job_phases.phase_of(job) not in JobPhase.FINISHED
        for task in job_commands.tasks_of(job)
    )
    marks = [(each.get("metadata") or {}).get("annotations") or {} for each in templates]
    return frozenset(each[name] for each in marks for name in names if name in each)


def _workdir(given: Place) -> Path:
    path = Path(given).expanduser().absolute() if given else Path.cwd()
    if not path.is_dir():
        raise HostPathError(f"the working directory {path} does not exist; correct the path")
    return path


def _paths(name: str, paths: Sequence[Path]) -> dict[str, str]:
    """Return the first path, and all of them separated by colons."""
    if not paths:
        return {}
    return {name: str(paths[0]), f"{name}S": os.pathsep.join(map(str, paths))}


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr)

"""A function and its arguments as a Secret, and the job that runs them. Nothing is sent here.

The Secret is mounted in each pod of the job: `call_runner.py`, cloudpickle, the function, and the
arguments of every call. Pod N runs call N.
"""

from __future__ import annotations

import base64
import io
import json
import os
import pickle
import re
import secrets
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from hekla.api import wellknown
from hekla.sdk.builders import DEFAULT_IMAGE, Job, Task
from hekla.units.objects import Object

HOST_IMAGE: Final = "host"
TOKEN: Final = "hekla.io/call-token"  # job: marks the lines of results in the output
MAX_BYTES: Final = 1_000_000
"""Of a Secret's data. Kubernetes allows 1 MiB."""
MAX_CALLS: Final = 10_000
VOLUME: Final = "hekla-call"
MOUNT_PATH: Final = "/hekla-call"
# Where pods have no mounts of their own, the agent says where a volume is.
RUN: Final = f'exec "$0" "${{HEKLA_VOLUME_HEKLA_CALL:-{MOUNT_PATH}}}/call_runner.py"'
MAX_STEM: Final = 40
PACKAGES: Final = ("site-packages", "dist-packages")

Arguments = tuple[Sequence[Any], Mapping[str, Any]]


class CallTooLarge(ValueError):
    """A function and its arguments are larger than a Secret.

    Example:
        try:
            job = submit(len, bytes(2_000_000))
        except CallTooLarge as error:
            print(error)
    """


@dataclass(frozen=True)
class Calls:
    """One function with the arguments of each call."""

    function: Callable[..., Any]
    arguments: Sequence[Arguments]

    def data(self, token: str, directory: str, path: Sequence[str]) -> dict[str, bytes]:
        """Return the files of the Secret: the call runs in a directory, and imports from a path."""
        import cloudpickle

        function = cloudpickle.dumps(self.function)
        calls = [cloudpickle.dumps((tuple(args), dict(kwargs))) for args, kwargs in self.arguments]
        about = {
            "token": token,
            "python": list(sys.version_info[:2]),
            "path": list(path),
            "directory": directory,
        }
        files = {
            "about.json": json.dumps(about).encode(),
            "calls.pickle": pickle.dumps((function, calls)),
            "call_runner.py": Path(__file__).with_name("call_runner.py").read_bytes(),
            "cloudpickle.zip": _cloudpickle(),
        }
        size = sum(map(len, files.values()))
        if size > MAX_BYTES:
            raise CallTooLarge(
                f"{name_of(self.function)} and its arguments take {size:,} bytes pickled, and a "
                f"Secret holds {MAX_BYTES:,}: pass paths of files, or load the data in the function"
            )
        return files


def call_job(
    calls: Calls, task: Task, job: Job, *, is_local: bool, parallelism: int | None = None
) -> tuple[Object, Object]:
    """Return the manifests of a job that runs the calls, one per pod, and of its Secret.

    Several calls are an array, of which `parallelism` pods exist at a time. `is_local` says that
    the cluster is on this machine, so that the function can run in this Python and directory.
    """
    if task.command or task.args:
        raise ValueError("the task of a function has no command: its pods run the function")
    if not 1 <= len(calls.arguments) <= MAX_CALLS:
        raise ValueError(f"{len(calls.arguments)} calls: a job runs 1 to {MAX_CALLS:,}")
    image = task.image
    if image == DEFAULT_IMAGE and is_local:
        image = HOST_IMAGE
    if image == DEFAULT_IMAGE:
        version = "{}.{}".format(*sys.version_info)
        raise ValueError(
            "the cluster is not on this machine, so the function needs an image with Python: "
            f'task=Task(image="python:{version}")'
        )
    on_host = image == HOST_IMAGE
    token = secrets.token_hex(8)
    name = job.name or job_name(calls.function)
    job = replace(job, name=name, annotations={**job.annotations, TOKEN: token})
    job.tasks = [
        replace(
            task,
            name=task.name or "call",
            image=image,
            command=["sh", "-c", RUN, _python(task) if on_host else "python3"],
            array=_indices(len(calls.arguments), parallelism),
        )
    ]
    manifest = job.manifest()
    _mount(manifest["spec"]["tasks"][0]["template"]["spec"], secret_name(name))
    if on_host:
        data = calls.data(token, task.working_dir or os.getcwd(), _search_path(task))
    else:
        data = calls.data(token, "", ())
    return manifest, _secret(name, data)


def _python(task: Task) -> str:
    """Return the Python of a call on this machine: of the task's environment, or this one."""
    if wellknown.RUN_ENVIRONMENT in task.annotations:
        return str(Path(task.env["VIRTUAL_ENV"]) / "bin" / "python")
    return sys.executable


def python_of(job: Object) -> Path | None:
    """Return the Python of this machine that a job of calls runs; None in an image."""
    container = job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    python = (container.get("command") or ("",))[-1]
    return Path(python) if container.get("image") == HOST_IMAGE and python else None


def _search_path(task: Task) -> list[str]:
    """Return what a call on this machine can import besides the packages of its Python.

    In an environment the packages of this Python are left out, and in a snapshot the modules of the
    working directory come from the snapshot.
    """
    entries = [os.path.abspath(entry) for entry in sys.path]
    if wellknown.RUN_ENVIRONMENT in task.annotations:
        entries = [entry for entry in entries if not _is_of_python(entry)]
    if wellknown.RUN_SNAPSHOT in task.annotations:
        entries = [task.working_dir, *(_in_snapshot(entry, task.working_dir) for entry in entries)]
    return list(dict.fromkeys(entries))


def _is_of_python(entry: str) -> bool:
    """Return whether an entry of the search path is the standard library or its packages."""
    library = sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["platstdlib"]
    return Path(entry).name in PACKAGES or entry.startswith(library) or entry.endswith(".zip")


def _in_snapshot(entry: str, snapshot: str) -> str:
    below = os.path.relpath(entry, os.getcwd())
    copied = os.path.normpath(os.path.join(snapshot, below))
    return copied if not below.startswith(os.pardir) and os.path.isdir(copied) else entry


def _indices(count: int, parallelism: int | None) -> str:
    """Return the array of several calls; each is of use by itself, so they are no gang."""
    if count == 1:
        return ""
    return f"0-{count - 1}" + (f"%{parallelism}" if parallelism else "")


def secret_name(job: str) -> str:
    return f"{job}-call"


def owned_by(secret: Object, job: Object) -> Object:
    """Return the Secret with an owner, so that it is deleted with the job."""
    metadata = job["metadata"]
    owner = {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
    return {**secret, "metadata": {**secret["metadata"], "ownerReferences": [owner]}}


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function, also of a partial or a callable object."""
    inner = getattr(function, "func", function)
    return str(getattr(inner, "__name__", type(inner).__name__))


def job_name(function: Callable[..., Any]) -> str:
    """Return a job name such as `train-x7k2q`: the function's name and a random suffix."""
    stem = re.sub(r"[^a-z0-9]+", "-", name_of(function).lower()).strip("-")[:MAX_STEM].strip("-")
    stem = stem if stem[:1].isalpha() else f"call-{stem}".strip("-")
    return f"{stem}-{secrets.token_hex(3)[:5]}"


def _mount(pod: Object, secret: str) -> None:
    pod["volumes"] = [
        *pod.get("volumes", ()),
        {"name": VOLUME, "secret": {"secretName": secret}},
    ]
    container = pod["containers"][0]
    container["volumeMounts"] = [
        *container.get("volumeMounts", ()),
        {"name": VOLUME, "mountPath": MOUNT_PATH, "readOnly": True},
    ]


def _secret(job: str, data: Mapping[str, bytes]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret_name(job), "labels": {wellknown.JOB_NAME: job}},
        "type": "Opaque",
        "immutable": True,
        "data": {name: base64.b64encode(content).decode() for name, content in data.items()},
    }


@cache
def _cloudpickle() -> bytes:
    """Return the package cloudpickle as a zip file, so that images need not have it."""
    import cloudpickle

    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(Path(cloudpickle.__file__).parent.glob("*.py")):
            archive.writestr(f"cloudpickle/{file.name}", file.read_bytes())
    return packed.getvalue()

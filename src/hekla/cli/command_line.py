"""The command of `hekla run -- COMMAND` and its flags, as a job."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from hekla.cli.vcctl.options import plugins_of
from hekla.sdk.builders import Job, Task, verbatim
from hekla.sdk.checked_amounts import checked
from hekla.sdk.host_environment import HOST_IMAGE, Prepared
from hekla.units.durations import DurationError, parse_age
from hekla.units.objects import Object

ARRAY_CPU = "1"
"""The CPU request of each index, as in Slurm: without one all indices would run at a time."""
MAX_STEM = 40
MAX_TTL_S = 2**31 - 1
_VARIABLE = re.compile(r"[-._]*[A-Za-z][-._A-Za-z0-9]*|_+[0-9_]*")


@dataclass(frozen=True)
class CommandLine:
    """A command to run as a job."""

    words: Sequence[str]
    name: str = ""
    image: str = HOST_IMAGE
    replicas: int = 1
    array: str = ""
    retries: int = 0
    cpu: str | None = None
    memory: str | None = None
    gpu: str | None = None
    queue: str = ""
    plugins: dict[str, list[str]] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    ttl_s: int | None = None
    """How long the ended job is kept; None: until it is deleted."""

    def job(self, here: Prepared) -> Object:
        """Return the job, in a working directory and with the variables of this machine."""
        variables = {**here.variables, **self.env}
        task = Task(
            "worker",
            image=self.image,
            command=list(self.words),
            replicas=self.replicas,
            array=self.array,
            cpu=ARRAY_CPU if self.array and self.cpu is None else self.cpu,
            memory=self.memory,
            gpu=self.gpu,
            env={name: verbatim(value) for name, value in variables.items()},
            working_dir=here.working_dir,
            annotations=here.annotations,
        )
        job = Job(
            self.name or _job_name(self.words),
            [task],
            queue=self.queue,
            plugins=self.plugins,
            retries=self.retries,
            ttl_s=self.ttl_s,
        )
        try:
            return job.manifest()
        except ValueError as error:
            raise click.UsageError(str(error)) from error


def _job_name(words: Sequence[str]) -> str:
    """Return a job name such as `train-x7k2q` for `python train.py`: a stem and a random suffix."""
    shells = ("python", "python3", "sh", "bash", "env")
    telling = [word for word in words if not word.startswith("-")]
    word = next((w for w in telling if Path(w).name not in shells), telling[0] if telling else "")
    first = (word.split() or [""])[0]  # of `sh -c 'some text'`
    stem = re.sub(r"[^a-z0-9]+", "-", Path(first).stem.lower()).strip("-")[:MAX_STEM].strip("-")
    stem = stem if stem[:1].isalpha() else f"run-{stem}".strip("-")
    return f"{stem}-{secrets.token_hex(3)[:5]}"


def command_line(
    words: Sequence[str],
    *,
    plugins: Sequence[str] = (),
    env: Sequence[str] = (),
    ttl: str = "none",
    **options: Any,
) -> CommandLine:
    """Return the command with its flags, or raise a UsageError."""
    variables = {}
    for text in env:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise click.UsageError(f"--env {text!r}: write KEY=VALUE")
        if not _VARIABLE.fullmatch(key):
            raise click.UsageError(
                f"--env {text!r}: {key!r} is no name of a variable; write letters, digits and _, "
                "first no digit"
            )
        variables[key] = value
    for resource in ("cpu", "memory", "gpu"):
        try:
            if options.get(resource) is not None:
                checked(resource, options[resource])
        except ValueError as error:
            raise click.UsageError(f"--{error}") from error
    line = CommandLine(
        words, plugins=plugins_of(plugins), env=variables, ttl_s=_ttl_seconds(ttl), **options
    )
    line.job(Prepared(""))  # refuse mistakes before anything is built for the command
    return line


def _ttl_seconds(text: str) -> int | None:
    if text == "none":
        return None
    try:
        seconds = round(parse_age(text))
    except DurationError as error:
        raise click.UsageError(f"--ttl: {error}; none keeps the job") from error
    if seconds > MAX_TTL_S:
        raise click.UsageError(f"--ttl {text}: is longer than {MAX_TTL_S // 86400}d; write none")
    return seconds

"""The tools vsub, vjobs, vqueues, vcancel, vsuspend and vresume.

Note: as in Volcano, -N is the namespace and -n the name here, the reverse of `vcctl job`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from hekla.api.wellknown import Action, PodGroupPhase
from hekla.cli import terminal
from hekla.cli.vcctl import jobs
from hekla.cli.vcctl.commands import VcctlCommand, note, warn
from hekla.cli.vcctl.errors import CommandFailed
from hekla.cli.vcctl.options import (
    Session,
    Target,
    all_namespaces_option,
    array_option,
    complete_names,
    connected,
    label_option,
    phase_option,
    resources,
    watch_option,
)
from hekla.cli.vcctl.output import (
    Column,
    name_of,
    number_at,
    output_option,
    phase_colour,
    show_list,
    show_object,
    text_at,
)
from hekla.cli.vcctl.queues import count_cell, counts_of, find_queue
from hekla.cli.vcctl.submission import DEFAULT_RESOURCES, create, needs_shell, plain_job
from hekla.kube.resources import JOBS, NAMESPACES, QUEUES

F = TypeVar("F", bound=Callable[..., Any])


def _name(function: F) -> F:
    """Add the name of a job, by -n or as an argument as for Slurm's commands."""

    @wraps(function)
    def called(*args: Any, word: str | None, name: str, **rest: Any) -> Any:
        if word and name and word != name:
            raise click.UsageError(f"two jobs are named: {word}, and -n {name}; give one")
        return function(*args, name=name or word or "", **rest)

    names = complete_names(JOBS)
    option = click.option(
        "-n", "--name", default="", help="Name of the job.", shell_complete=names
    )(called)
    argument = click.argument("word", metavar="[NAME]", required=False, shell_complete=names)
    return argument(option)  # type: ignore[return-value]


_namespace = click.option(
    "-N",
    "--namespace",
    default="",
    help="Namespace.  [default: the context's]",
    shell_complete=complete_names(NAMESPACES),
)


def _target(name: str, namespace: str, verb: str) -> Target:
    if not name:
        raise CommandFailed(
            f"job name is mandatory to {verb} a particular job", hint=f"write `v{verb} -n NAME`"
        )
    return Target(name, namespace or None)


@click.command(
    cls=VcctlCommand,
    verb="run job",
    examples=[
        "vsub -n my-job -i busybox -r 2 -c 'echo hello'",
        "vsub -n my-job -N ml -R cpu=2",
        "vsub -n sweep --array 0-99%10 -c 'sh -c \"echo index $HEKLA_ARRAY_INDEX\"'",
    ],
)
@_name
@click.option(
    "-N",
    "--namespace",
    default="",
    envvar="VOLCANO_DEFAULT_JOB_NAMESPACE",
    help="Namespace.  [default: the context's]",
)
@click.option("-i", "--image", default="busybox", envvar="VOLCANO_DEFAULT_IMAGE", help="Image.")
@click.option(
    "-S", "--scheduler", default="volcano", envvar="VOLCANO_SCHEDULER_NAME", help="Scheduler."
)
@click.option("-m", "--min", "min_available", default=1, show_default=True, help="Gang size.")
@click.option("-r", "--replicas", default=1, show_default=True, help="Number of pods.")
@array_option
@click.option("-R", "--requests", default=DEFAULT_RESOURCES, callback=resources, help="Requests.")
@click.option("-L", "--limits", default=DEFAULT_RESOURCES, callback=resources, help="Limits.")
@click.option(
    "-c",
    "--command",
    default="",
    help="Command, split into words as by a shell but run without one: for variables, pipes and "
    "several commands write sh -c '…'.",
)
@click.option("--check/--no-check", default=True, help="Validate before sending.  [default: check]")
@connected
def vsub(
    session: Session,
    name: str,
    namespace: str,
    image: str,
    scheduler: str,
    min_available: int,
    replicas: int,
    array: str,
    requests: dict[str, str],
    limits: dict[str, str],
    command: str,
    check: bool,
) -> None:
    """Submit a job."""
    if not name:
        raise CommandFailed("job name cannot be left blank", hint="write `vsub -n NAME`")
    manifest = plain_job(
        name,
        image=image,
        scheduler=scheduler,
        min_available=min_available,
        replicas=replicas,
        array=array,
        requests=requests,
        limits=limits,
        command=command,
    )
    if needs_shell(command):
        warn(f"no shell runs {command!r}: write -c {shlex.quote(f'sh -c {shlex.quote(command)}')}")
    created = create(session, manifest, namespace or None, check=check)
    terminal.echo(f"run job {name_of(created)} successfully")


@click.command(
    cls=VcctlCommand,
    verb="list jobs",
    examples=["vjobs", "vjobs --all-namespaces", "vjobs -n my-job -N ml"],
)
@_name
@_namespace
@click.option("-S", "--scheduler", default="", help="Only jobs of this scheduler.")
@all_namespaces_option
@click.option("--selector", default="", help="Only names that contain this text.")
@label_option
@phase_option
@output_option
@watch_option
@connected
def vjobs(
    session: Session,
    name: str,
    namespace: str,
    scheduler: str,
    all_namespaces: bool,
    selector: str,
    labels: str,
    phase: str,
    output: str,
    watch: bool,
) -> None:
    """List jobs, or show one."""
    if name:
        job = jobs.find_job(session, Target(name, namespace or None), "view")
        if output and output != "wide":
            show_object(JOBS, job, output)
            return
        from hekla.cli.vcctl import job_view

        terminal.echo(job_view.report_of(session.client, job, conditions=False))
        return
    jobs.list_jobs(
        session,
        namespace=None if all_namespaces else namespace or session.namespace,
        scheduler=scheduler,
        selector=selector,
        phases=jobs.phases_of(phase),
        labels=labels,
        output=output,
        watch=watch,
    )


@click.command(
    cls=VcctlCommand, verb="cancel job", examples=["vcancel my-job", "vcancel -n my-job -N ml"]
)
@_name
@_namespace
@connected
def vcancel(session: Session, name: str, namespace: str) -> None:
    """Delete a job."""
    jobs.delete_job(session, _target(name, namespace, "cancel"))
    terminal.echo(f"cancel job {name} successfully")


@click.command(
    cls=VcctlCommand,
    verb="suspend job",
    examples=["vsuspend my-job", "vsuspend -n my-job -N ml"],
)
@_name
@_namespace
@connected
def vsuspend(session: Session, name: str, namespace: str) -> None:
    """Suspend a job: terminate its pods and keep the job."""
    jobs.send_command(session, _target(name, namespace, "suspend"), "suspend", Action.ABORT_JOB)
    note(f"requested suspension of job {name}; `vresume -n {name}` resumes it")


@click.command(
    cls=VcctlCommand, verb="resume job", examples=["vresume my-job", "vresume -n my-job -N ml"]
)
@_name
@_namespace
@connected
def vresume(session: Session, name: str, namespace: str) -> None:
    """Resume a suspended job."""
    jobs.send_command(session, _target(name, namespace, "resume"), "resume", Action.RESUME_JOB)
    note(f"requested resumption of job {name}")


@click.command(cls=VcctlCommand, verb="list queues", examples=["vqueues", "vqueues -n ml"])
@click.option("-n", "--name", default="", help="One queue.", shell_complete=complete_names(QUEUES))
@output_option
@connected
def vqueues(session: Session, name: str, output: str) -> None:
    """List queues, or show one."""
    queues = [find_queue(session, name)] if name else list(session.client.list(QUEUES))
    if name and output not in ("", "wide"):
        show_object(QUEUES, queues[0], output)
        return
    # Volcano reads these from the queue's status, which no longer contains them.
    counts = counts_of(session)

    def count(phase: str) -> Any:
        return count_cell(counts, phase)

    columns = (
        Column("Name", name_of, 25),
        Column("Weight", number_at("spec", "weight"), 8),
        Column("State", text_at("status", "state"), 8, colour=phase_colour),
        Column("Inqueue", count(PodGroupPhase.INQUEUE), 8),
        Column("Pending", count(PodGroupPhase.PENDING), 8),
        Column("Running", count(PodGroupPhase.RUNNING), 8),
        Column("Unknown", count(PodGroupPhase.UNKNOWN), 8),
    )
    show_list(QUEUES, queues, columns, output)

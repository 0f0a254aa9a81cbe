"""`vcctl job wait`, `vcctl job logs` and `vcctl job scale`."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from hekla.api.wellknown import JOB_NAME, JobPhase
from hekla.cli import terminal
from hekla.cli.vcctl.commands import VcctlCommand, program
from hekla.cli.vcctl.errors import TIMED_OUT, CommandFailed, did_you_mean
from hekla.cli.vcctl.options import Session, Target, connected, duration, one_job
from hekla.cli.vcctl.output import name_of, namespace_of, phase_colour
from hekla.units.objects import Object

if TYPE_CHECKING:
    from hekla.sdk.logs import LogOptions

ALL = "all"
_PALETTE = ("cyan", "yellow", "green", "magenta", "blue", "bright_red", "bright_cyan", "white")


def _until(_: click.Context, param: click.Parameter, value: str) -> str:
    from hekla.sdk.job_phases import PHASES

    known = {word.lower(): word for word in ("finished", "started", *PHASES)}
    if value.lower() not in known:
        near = did_you_mean(value, known.values()) or f"one of {', '.join(known.values())}"
        raise click.BadParameter(f"{value!r} is not a condition of wait; {near}", param=param)
    return known[value.lower()]


@click.command(
    cls=VcctlCommand,
    verb="wait for job",
    examples=[
        "vcctl job wait my-job",
        "vcctl job wait my-job --for Running --timeout 5m",
        "vcctl job wait my-job && echo it worked",
    ],
)
@one_job
@click.option(
    "--for",
    "until",
    default="finished",
    callback=_until,
    help="finished, started or a phase such as Running.  [default: finished]",
)
@click.option("--timeout", callback=duration, help="Timeout such as 90s or 5m.  [default: none]")
@connected
def wait(session: Session, target: Target, until: str, timeout: float | None) -> None:
    """Wait for a job.

    Exits with 0 when the condition is met (for `finished`: Completed), with 1 when the job finished
    in another phase, with 124 after the timeout.
    """
    from hekla.cli.vcctl.jobs import find_job
    from hekla.sdk import job_phases, job_wait

    job = find_job(session, target, "wait")
    try:
        with _reasons(session, job):
            job = job_wait.wait(
                session.client,
                name_of(job),
                namespace=namespace_of(job),
                until=until,
                timeout_s=timeout,
            )
    except job_wait.JobEnded as ended:
        job = ended.job
        _print_phase(job)
        click.get_current_context().exit(1)
    except TimeoutError as error:
        raise CommandFailed(
            str(error).splitlines()[0],  # the reasons are printed
            hint=f"`{program()} job explain {name_of(job)}` shows the reason",
            code=TIMED_OUT,
        ) from error
    _print_phase(job)
    if until == "finished" and job_phases.phase_of(job) != JobPhase.COMPLETED:
        click.get_current_context().exit(1)


def _print_phase(job: Object) -> None:
    from hekla.sdk import job_phases

    phase = job_phases.phase_of(job)
    terminal.echo(f"job {name_of(job)} is {terminal.style(phase, fg=phase_colour(phase))}")


def _attempt(_: click.Context, param: click.Parameter, value: str) -> int | str | None:
    if value in ("", ALL):
        return value or None
    if not value.isdigit() or int(value) < 1:
        raise click.BadParameter(f"{value!r} is neither a number from 1 nor {ALL}", param=param)
    return int(value)


@click.command(
    cls=VcctlCommand,
    verb="read logs",
    examples=[
        "vcctl job logs my-job",
        "vcctl job logs my-job -f",
        "vcctl job logs my-job --task worker --tail 20",
        "vcctl job logs my-job --attempt 1",
        "vcctl job logs my-job-worker-0",
    ],
)
@one_job
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the job has finished.")
@click.option("-t", "--task", default="", help="Only pods of this task.")
@click.option("-c", "--container", default="", help="Only this container.")
@click.option("--tail", type=click.IntRange(0), help="Only the last lines of each pod.")
@click.option("--since", callback=duration, help="Only lines newer than 90s, 5m, ….")
@click.option("--timestamps", is_flag=True, help="Prefix each line with its time.")
@click.option("-p", "--previous", is_flag=True, help="Output of the run before the last restart.")
@click.option(
    "--attempt",
    default="",
    metavar="N|all",
    callback=_attempt,
    help="Output of retry N of each pod, counted from 1, or of all that are kept.",
)
@click.option("--prefix/--no-prefix", default=True, help="Prefix each line with the pod.")
@connected
def logs(session: Session, target: Target, prefix: bool, **given: Any) -> None:
    """Show the output of all pods of a job, or of one pod if NAME is a pod."""
    from hekla.cli.vcctl.jobs import find_job
    from hekla.kube.resources import JOBS, PODS
    from hekla.sdk.logs import LogOptions, job_logs

    if given["attempt"] is not None and (given["follow"] or given["previous"]):
        raise click.UsageError("--attempt reads what is kept: give it without -f and -p")
    options = LogOptions(
        follow=given["follow"],
        previous=given["previous"],
        timestamps=given["timestamps"],
        tail_lines=given["tail"],
        since_s=None if given["since"] is None else max(1, round(given["since"])),
    )
    printer = LinePrinter(prefix=prefix)
    try:
        job = find_job(session, target, "logs")
    except CommandFailed:
        if not target.name:
            raise
        pod = session.client.find(
            PODS, target.name, namespace=target.namespace or session.namespace
        )
        if pod is not None:
            _print_pod(session, pod, printer, given, options)
        elif not _print_kept(session, target, printer, given, options):
            raise
        return
    name, namespace = name_of(job), namespace_of(job)
    task, container = (
        _known_task(job, given["task"]),
        _known_container(session, job, given["container"]),
    )
    if given["attempt"] is not None:
        _print_attempts(session, job, printer, given, options)
        return
    lines = job_logs(
        session.client,
        name,
        namespace=namespace,
        task=task,
        container=container,
        options=options,
    )
    with _reasons(session, job) if options.follow else nullcontext():
        for line in lines:
            printer.show(line)
    if options.follow:
        if session.client.find(JOBS, name, namespace=namespace) is None:
            terminal.echo(_deleted(job), err=True)
    elif not printer.seen:
        terminal.echo(_no_output(session, job, task), err=True)


def _known_task(job: Object, task: str) -> str:
    from hekla.sdk import job_commands

    return _known("task", task, job, [str(one.get("name")) for one in job_commands.tasks_of(job)])


def _known_container(session: Session, job: Object, container: str) -> str:
    """Return the container if the job or one of its pods has it: admission may add some."""
    from hekla.sdk import job_commands
    from hekla.sdk.logs import pods_of

    known = _containers(one.get("template") or {} for one in job_commands.tasks_of(job))
    if container and container not in known:
        known += _containers(pods_of(session.client, name_of(job), namespace_of(job)))
    return _known("container", container, job, known)


def _containers(pods: Iterable[Object]) -> list[str]:
    specs = [pod.get("spec") or {} for pod in pods]
    lists = [spec.get(kind) or () for spec in specs for kind in ("initContainers", "containers")]
    return [str(one["name"]) for one in chain(*lists)]


def _known(what: str, given: str, obj: Object, known: list[str], *, kind: str = "job") -> str:
    if given and given not in known:
        names = ", ".join(dict.fromkeys(known))
        raise CommandFailed(
            f'{kind} {name_of(obj)} has no {what} "{given}"',
            hint=did_you_mean(given, known) or f"there are: {names}",
        )
    return given


def _no_output(session: Session, job: Object, task: str) -> str:
    from hekla.sdk import job_phases
    from hekla.sdk.logs import pods_of

    pods = len(pods_of(session.client, name_of(job), namespace_of(job), task))
    if not pods and job_phases.phase_of(job) != JobPhase.PENDING:
        line = f"{program()} job logs {name_of(job)} -n {namespace_of(job)} --attempt all"
        return (
            f"job {name_of(job)} has no pods any more; `{line}` shows what is kept of their output"
        )
    found = {0: "no pods yet:", 1: "1 pod has"}.get(pods, f"{pods} pods have")
    return f"job {name_of(job)}: {found} no output"


def _print_attempts(
    session: Session, job: Object, printer: LinePrinter, given: dict[str, Any], options: LogOptions
) -> None:
    from hekla.sdk.attempts import attempt_lines

    wanted = None if given["attempt"] == ALL else given["attempt"]
    where = {"task": given["task"], "container": given["container"], "options": options}
    for line in attempt_lines(session.client, job, wanted, **where):
        printer.show(line)
    if not printer.seen:
        which = "an attempt" if wanted is None else f"attempt {wanted}"
        terminal.echo(f"job {name_of(job)}: no output of {which} is kept", err=True)


def _print_pod(
    session: Session,
    pod: Object,
    printer: LinePrinter,
    given: dict[str, Any],
    options: LogOptions,
) -> None:
    """Print the output of one pod: its name is the prefix of lines, so people type it."""
    from hekla.sdk.container_runs import is_started
    from hekla.sdk.logs import pod_lines

    name, container = name_of(pod), given["container"]
    job = (pod["metadata"].get("labels") or {}).get(JOB_NAME, "JOB")
    if given["task"] or given["attempt"] is not None:
        flag = "--task" if given["task"] else "--attempt"
        raise CommandFailed(
            f"{name} is a pod, and {flag} is for jobs",
            hint=f"`{program()} job logs {job} {flag} …`",
        )
    _known("container", container, pod, _containers([pod]), kind="pod")
    if is_started(pod):
        for line in pod_lines(session.client, pod, container, options):
            printer.show(line)
    if not printer.seen:
        terminal.echo(f"pod {name} has no output", err=True)


def _print_kept(
    session: Session,
    target: Target,
    printer: LinePrinter,
    given: dict[str, Any],
    options: LogOptions,
) -> bool:
    """Print what is kept of the output of a deleted job; return whether there is any."""
    from hekla.kube.errors import KubeError
    from hekla.sdk import attempts, job_history

    namespace = target.namespace or session.namespace
    request = job_history.Request(name=target.name, namespace=namespace, limit=1)
    wanted = given["attempt"] if isinstance(given["attempt"], int) else None
    try:
        for record in job_history.read(session.client, request):
            lines = attempts.lines_of_deleted_job(
                session.client,
                record.uid,
                record.name,
                record.namespace,
                {task.name: task.pods for task in record.tasks},
                wanted,
                task=given["task"],
                container=given["container"],
                options=options,
            )
            for line in lines:
                if not printer.seen:
                    terminal.echo(f"job {record.name} was deleted; its output is kept:", err=True)
                printer.show(line)
    except KubeError:  # no history: the missing job is the failure
        return False
    return bool(printer.seen)


def _deleted(job: Object) -> str:
    where = f"{name_of(job)} -n {namespace_of(job)}"
    return f"job {name_of(job)} was deleted; `hekla history {where}` shows its record"


def _reasons(session: Session, job: Object) -> AbstractContextManager[Any]:
    """Print why the job does not run, as long as the context lasts."""
    from hekla.cli.reason_watch import ReasonWatch

    return ReasonWatch(session.config, job, program=program())


class LinePrinter:
    """Print lines with the pod's name as a coloured prefix."""

    def __init__(self, *, prefix: bool = True) -> None:
        self._prefix = prefix
        self.seen: dict[str, str] = {}

    def show(self, line: Any) -> None:
        colour = self.seen.setdefault(line.source, _PALETTE[len(self.seen) % len(_PALETTE)])
        before = click.style(f"{line.source} | ", fg=colour) if self._prefix else ""
        click.echo(before + line.text)


def finish(session: Session, job: Object, *, logs: bool) -> None:
    """Follow a new job until it finishes; exit with 1 if it did not complete."""
    from hekla.sdk import job_phases, job_wait
    from hekla.sdk.logs import job_logs

    name, namespace = name_of(job), namespace_of(job)
    with _reasons(session, job):
        if logs:
            printer = LinePrinter()
            for line in job_logs(session.client, name, namespace=namespace, follow=True):
                printer.show(line)
        job = job_wait.wait(session.client, name, namespace=namespace)
    _print_phase(job)
    if job_phases.phase_of(job) != JobPhase.COMPLETED:
        click.get_current_context().exit(1)


@click.command(
    cls=VcctlCommand,
    examples=["vcctl job scale my-job -r 8", "vcctl job scale my-job -r 8 --task worker -m 4"],
)
@one_job
@click.option(
    "-r", "--replicas", type=click.IntRange(0), required=True, help="Number of pods of the task."
)
@click.option("-t", "--task", default="", help="Task; optional if the job has one.")
@click.option("-m", "--min", "min_available", type=click.IntRange(0), help="New gang size.")
@connected
def scale(
    session: Session, target: Target, replicas: int, task: str, min_available: int | None
) -> None:
    """Set the number of pods of a task."""
    from hekla.cli.vcctl.jobs import find_job
    from hekla.kube.resources import JOBS
    from hekla.sdk import job_commands

    job = find_job(session, target, "scale")
    try:
        patch = job_commands.scale_patch(job, replicas, task=task, min_available=min_available)
    except ValueError as error:
        raise CommandFailed(str(error), hint="select one with --task") from error
    scaled = session.client.patch(
        JOBS, name_of(job), patch, namespace=namespace_of(job), kind="json"
    )
    gang = scaled["spec"].get("minAvailable")
    terminal.echo(f"scale job {name_of(job)} successfully")
    if gang != job["spec"].get("minAvailable"):
        terminal.echo(f"  minAvailable is now {gang}", err=True)

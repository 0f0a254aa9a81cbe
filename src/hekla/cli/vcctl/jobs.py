"""`vcctl job`: Volcano's six verbs, and the group of all job commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from hekla.api import wellknown
from hekla.api.wellknown import Action
from hekla.cli import terminal
from hekla.cli.vcctl import list_watch
from hekla.cli.vcctl.commands import VcctlGroup, note, program, report_failure
from hekla.cli.vcctl.errors import (
    FAILURE,
    CommandFailed,
    did_you_mean,
    failure_of,
    safe_hint,
)
from hekla.cli.vcctl.options import (
    Session,
    Target,
    all_namespaces_option,
    complete_names,
    connected,
    label_option,
    namespace_option,
    one_job,
    phase_option,
    several_jobs,
    watch_option,
)
from hekla.cli.vcctl.output import (
    Column,
    age_of,
    field_at,
    name_of,
    namespace_of,
    number_at,
    output_option,
    phase_colour,
    show_object,
    text_at,
)
from hekla.kube.errors import Forbidden, KubeError, NotFound
from hekla.kube.resources import COMMANDS, JOBS, NAMESPACES, QUEUES
from hekla.units.objects import Object


@click.group(
    cls=VcctlGroup,
    lazy={
        "run": "submission:run_command",
        "submit": "submission:submit",
        "wait": "job_runtime:wait",
        "logs": "job_runtime:logs",
        "scale": "job_runtime:scale",
        "retry": "job_retry:retry",
        "explain": "explain:explain",
    },
)
def job() -> None:
    """Run, list, follow and change jobs."""


def _replicas(job: Object) -> int:
    return sum(task.get("replicas") or 0 for task in field_at(job, "spec", "tasks") or ())


def _type(job: Object) -> str:
    return str((field_at(job, "metadata", "labels") or {}).get(wellknown.JOB_TYPE) or "Batch")


NAMESPACE_COLUMN = Column("Namespace", namespace_of, gap=3)
COLUMNS = (
    Column("Name", name_of, gap=3),
    Column("Creation", lambda job: text_at("metadata", "creationTimestamp")(job)[:10], 15),
    Column("Phase", text_at("status", "state", "phase"), 12, colour=phase_colour),
    Column("JobType", _type, 12),
    Column("Replicas", _replicas, 12),
    Column("Min", number_at("status", "minAvailable"), 6),
    Column("Pending", number_at("status", "pending"), 10),
    Column("Running", number_at("status", "running"), 10),
    Column("Succeeded", number_at("status", "succeeded"), 12),
    Column("Failed", number_at("status", "failed"), 10),
    Column("Unknown", number_at("status", "unknown"), 12),
    Column("RetryCount", number_at("status", "retryCount"), 10),
    Column("Queue", text_at("spec", "queue"), gap=3, wide=True),
    Column("Priority", text_at("spec", "priorityClassName"), gap=3, wide=True),
    Column("Age", age_of, 8, wide=True),
)


def list_jobs(
    session: Session,
    *,
    namespace: str | None,
    queue: str = "",
    scheduler: str = "",
    selector: str = "",
    phases: frozenset[str] = frozenset(),
    labels: str = "",
    output: str = "",
    watch: bool = False,
) -> None:
    """Show the table of `vcctl job list` and `vjobs`; no namespace means all."""

    def wanted(job: Object) -> bool:
        return (
            (not queue or field_at(job, "spec", "queue") == queue)
            and (not scheduler or field_at(job, "spec", "schedulerName") == scheduler)
            and selector in name_of(job)
            and (not phases or text_at("status", "state", "phase")(job).lower() in phases)
        )

    list_watch.show(
        session.client,
        JOBS,
        COLUMNS if namespace else (NAMESPACE_COLUMN, *COLUMNS),
        output,
        namespace=namespace,
        labels=labels,
        wanted=wanted,
        watch=watch,
    )


def phases_of(text: str) -> frozenset[str]:
    return frozenset(word.strip().lower() for word in text.split(",") if word.strip())


@job.command(
    "list",
    examples=[
        "vcctl job list",
        "vcctl job list -A --phase Pending,Running -o wide",
        "vcctl job list -q ml -l team=vision --watch",
        "vcctl job list -o jsonpath='{range .items[*]}{.metadata.name}{\"\\n\"}{end}'",
    ],
)
@namespace_option
@all_namespaces_option
@click.option(
    "-q", "--queue", default="", help="Only this queue.", shell_complete=complete_names(QUEUES)
)
@click.option("-S", "--scheduler", default="", help="Only jobs of this scheduler.")
@click.option("--selector", default="", help="Only names that contain this text.")
@label_option
@phase_option
@output_option
@watch_option
@connected
def list_(
    session: Session,
    namespace: str,
    all_namespaces: bool,
    queue: str,
    scheduler: str,
    selector: str,
    labels: str,
    phase: str,
    output: str,
    watch: bool,
) -> None:
    """List jobs."""
    list_jobs(
        session,
        namespace=None if all_namespaces else namespace or session.namespace,
        queue=queue,
        scheduler=scheduler,
        selector=selector,
        phases=phases_of(phase),
        labels=labels,
        output=output,
        watch=watch,
    )


def find_job(session: Session, target: Target, verb: str, missing: str = "") -> Object:
    """Return a job; if it does not exist, fail with a hint."""
    if not target.name:
        raise CommandFailed(
            missing or f"job name is mandatory to {verb} job",
            hint=f"write `vcctl job {verb} NAME`; `vcctl job list` lists the names",
        )
    namespace = target.namespace or session.namespace
    try:
        return session.client.get(JOBS, target.name, namespace=namespace)
    except NotFound as error:
        hint = safe_hint(lambda: _other_jobs(session, target, namespace))
        raise CommandFailed(error.message, hint=hint) from error


def _other_jobs(session: Session, target: Target, namespace: str) -> str:
    """Return a hint for a missing job: a similar name, another namespace, or no job at all."""
    client, name = session.client, target.name
    if target.by_n and client.find(NAMESPACES, name) is not None:
        return (
            f'there is a namespace "{name}": -n alone is the job\'s name; '
            f"for a job in that namespace use -N NAME -n {name}"
        )
    if ended := safe_hint(lambda: _ended_before(session, name, namespace)):
        return ended
    names = [name_of(one) for one in client.list(JOBS, namespace=namespace)]
    if near := did_you_mean(name, names):
        return near
    try:
        elsewhere = [namespace_of(one) for one in client.list(JOBS) if name_of(one) == name]
    except Forbidden:
        elsewhere = []
    if elsewhere:
        return f"it exists in namespace {elsewhere[0]}: use -N {name} -n {elsewhere[0]}"
    return f"`vcctl job list -n {namespace}` lists the jobs of namespace {namespace}"


def _ended_before(session: Session, name: str, namespace: str) -> str:
    """Return a hint if the history has a job of this name that was deleted."""
    from hekla.sdk import job_history

    request = job_history.Request(name=name, namespace=namespace, limit=1)
    for record in job_history.read(session.client, request):
        ended = f"{record.finished:%Y-%m-%dT%H:%M:%SZ}"
        return (
            f"it was {record.phase} at {ended} and has been deleted since: "
            f"`hekla history {name} -n {namespace} -o wide` shows its record"
        )
    return ""


@job.command(
    examples=[
        "vcctl job view my-job",
        "vcctl job view -n my-job",
        "vcctl job view -N my-job -n ml -o yaml",
    ]
)
@one_job
@output_option
@connected
def view(session: Session, target: Target, output: str) -> None:
    """Show a job, its tasks and its events."""
    job_object = find_job(
        session,
        target,
        "view",
        "job name (specified by --name or -N) is mandatory to view a particular job",
    )
    if output and output != "wide":
        show_object(JOBS, job_object, output)
        return
    from hekla.cli.vcctl import job_view

    terminal.echo(job_view.report_of(session.client, job_object))


def send_command(session: Session, target: Target, verb: str, action: str) -> Object:
    """Create a Command for a job."""
    from hekla.sdk import job_commands

    job_object = find_job(session, target, verb)
    session.client.create(COMMANDS, job_commands.command(job_object, action))
    return job_object


def each(targets: Sequence[Target], verb: str, act: Callable[[Target], None]) -> None:
    """Do a verb on each job; of several, go on after a failure and exit with it in the end."""
    if len(targets) == 1:
        act(targets[0])
        return
    failed = False
    for target in targets:
        try:
            act(target)
        except (CommandFailed, KubeError) as error:
            failure = failure_of(error) if isinstance(error, KubeError) else error
            report_failure(f"Failed to {verb} job {target.name}: {failure.message}", failure.hint)
            failed = True
    if failed:
        click.get_current_context().exit(FAILURE)


@job.command(examples=["vcctl job suspend my-job", "vcctl job suspend -N my-job -n ml"])
@several_jobs
@connected
def suspend(session: Session, targets: Sequence[Target]) -> None:
    """Suspend jobs: terminate their pods and keep the jobs."""

    def act(target: Target) -> None:
        name = name_of(send_command(session, target, "suspend", Action.ABORT_JOB))
        note(f"requested suspension of job {name}; resume: `{program()} job resume {name}`")

    each(targets, "suspend", act)


@job.command(examples=["vcctl job resume my-job", "vcctl job resume -N my-job -n ml"])
@several_jobs
@connected
def resume(session: Session, targets: Sequence[Target]) -> None:
    """Resume suspended jobs."""

    def act(target: Target) -> None:
        name = name_of(send_command(session, target, "resume", Action.RESUME_JOB))
        note(f"requested resumption of job {name}; wait: `{program()} job wait {name}`")

    each(targets, "resume", act)


def delete_job(session: Session, target: Target, verb: str = "delete") -> None:
    if not target.name:
        find_job(session, target, verb)
    namespace = target.namespace or session.namespace
    try:
        session.client.delete(JOBS, target.name, namespace=namespace)
    except NotFound as error:
        hint = safe_hint(lambda: _other_jobs(session, target, namespace))
        raise CommandFailed(error.message, hint=hint) from error


@job.command(
    examples=["vcctl job delete my-job", "vcctl job delete a b", "vcctl job delete -N a -n ml"]
)
@several_jobs
@connected
def delete(session: Session, targets: Sequence[Target]) -> None:
    """Delete jobs and their pods."""

    def act(target: Target) -> None:
        delete_job(session, target)
        terminal.echo(f"delete job {target.name} successfully")

    each(targets, "delete", act)

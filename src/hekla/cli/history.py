"""`hekla history`: jobs that have ended, newest first."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from hekla.api import history as api
from hekla.api.history import JobRecord
from hekla.cli import terminal
from hekla.cli.vcctl.commands import VcctlCommand
from hekla.cli.vcctl.errors import CommandFailed
from hekla.cli.vcctl.options import (
    Session,
    all_namespaces_option,
    connected,
    namespace_option,
    phases,
)
from hekla.cli.vcctl.output import Column, Table, as_yaml, phase_colour
from hekla.kube.errors import ConfigError, TlsError, Unauthorized
from hekla.kube.kubeconfig import ClusterConfig
from hekla.kube.sync_client import SyncClient
from hekla.units.durations import DurationError, parse_age
from hekla.units.objects import Object
from hekla.units.timestamps import TimestampError, parse_datetime

F = TypeVar("F", bound=Callable[..., Any])

GIB = 1 << 30
MIB = 1 << 20


def since_option(default: str) -> Callable[[F], F]:
    """Add --since, as a time."""
    return click.option(
        "--since",
        default=default,
        callback=_since,
        metavar="AGE|TIME",
        help="Only jobs that ended since then, such as 7d, 36h or 2026-01-31."
        + (f"  [default: {default}]" if default else ""),
    )


def _since(_: click.Context, param: click.Parameter, text: str) -> datetime | None:
    if not text:
        return None
    try:
        if text[:4].isdigit() and "-" in text:
            return parse_datetime(text if "T" in text else f"{text}T00:00:00Z")
        return datetime.now(UTC) - timedelta(seconds=parse_age(text))
    except (DurationError, TimestampError, OverflowError) as error:
        raise click.BadParameter(str(error), param=param) from error


def source_options(function: F) -> F:
    """Add the flags that name another server of job records than the API server."""
    for option in (
        click.option(
            "--insecure-skip-tls-verify",
            is_flag=True,
            help="Do not verify the certificate of --url; only through `kubectl port-forward`.",
        ),
        click.option(
            "--certificate-authority",
            type=click.Path(path_type=Path, dir_okay=False, exists=True),
            metavar="FILE",
            help="Authority that signed the certificate of --url.",
        ),
        click.option(
            "--url",
            default="",
            help="Address of controllers with --history-file; gets the token of the kubeconfig.",
        ),
    ):
        function = option(function)
    return function


def filter_options(function: F) -> F:
    for option in (
        click.option(
            "--phase",
            default="",
            callback=phases(api.CANCELLED),
            metavar="PHASES",
            help="Only these phases, such as Failed,Cancelled.",
        ),
        click.option("-q", "--queue", default="", help="Only this queue."),
        click.option("-u", "--user", default="", help="Only jobs that this user submitted."),
    ):
        function = option(function)
    return function


def read(
    session: Session,
    *,
    url: str,
    certificate_authority: Path | None,
    insecure_skip_tls_verify: bool,
    namespace: str,
    all_namespaces: bool,
    **wanted: Any,
) -> list[JobRecord]:
    """Return the records that the flags of a command ask for."""
    from hekla.sdk import job_history

    place = None if all_namespaces else namespace or session.namespace
    request = job_history.Request(namespace=place, **wanted)
    if not url:
        if certificate_authority or insecure_skip_tls_verify:
            raise click.UsageError(
                "--certificate-authority and --insecure-skip-tls-verify belong to --url"
            )
        return job_history.read(session.client, request)
    ca_pem = certificate_authority.read_text() if certificate_authority else None
    config = _at(session.config, url, ca_pem, insecure=insecure_skip_tls_verify)
    with SyncClient(config, component="history") as client:
        try:
            return job_history.read(client, request)
        except TlsError as error:
            raise CommandFailed(
                str(error),
                hint="--certificate-authority FILE verifies it; through `kubectl port-forward`, "
                "which is encrypted itself, --insecure-skip-tls-verify is safe",
            ) from error
        except Unauthorized as error:
            raise CommandFailed(
                error.message,
                hint="the controllers accept tokens, no client certificates: use a context with a "
                "token, such as one of `kubectl create token ACCOUNT`",
            ) from error


def _at(config: ClusterConfig, url: str, ca_pem: str | None, *, insecure: bool) -> ClusterConfig:
    """Return the credentials of a cluster with the address of its controllers."""
    if not url.startswith("https://"):
        raise CommandFailed(
            f"--url {url}: must start with https://, as it is sent the token of your kubeconfig",
            hint="the controllers serve https with --metrics-secure",
        )
    try:
        return msgspec.structs.replace(
            config, server=url.rstrip("/"), ca_pem=ca_pem, insecure=insecure, tls_server_name=None
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error


def duration(seconds: float) -> str:
    """Return a duration as `sacct` prints it: 1-02:03:04, or 00:05:00."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    clock = f"{hour:02d}:{minute:02d}:{second:02d}"
    return f"{days}-{clock}" if days else clock


def amount(value: float) -> str:
    """Return a number with four digits; `-` for none."""
    return f"{value:.4g}" if value else "-"


def memory(value: float) -> str:
    """Return bytes in Ki, Mi or Gi; `-` for none."""
    if not value:
        return "-"
    unit, name = (GIB, "Gi") if value >= GIB else (MIB, "Mi") if value >= MIB else (1024, "Ki")
    amount = value / unit
    return f"{amount:.3g}{name}" if amount < 1000 else f"{amount:.0f}{name}"


def percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def exit_codes(record: JobRecord) -> str:
    """Return the codes other than 0; 0 if all pods ended with it."""
    failed = [code for code in record.exit_codes if code != "0"]
    return ",".join(failed) or ("0" if record.exit_codes else "-")


_CELLS: tuple[tuple[str, Callable[[JobRecord], str], bool], ...] = (
    ("Job", lambda r: r.name, False),
    ("User", lambda r: r.short_user or "-", False),
    ("Queue", lambda r: r.queue, False),
    ("State", lambda r: r.phase, False),
    ("Submitted", lambda r: f"{r.submitted:%Y-%m-%dT%H:%M:%SZ}", False),
    ("Wait", lambda r: duration(r.wait_seconds), False),
    ("Run", lambda r: duration(r.run_seconds), False),
    ("Exit", exit_codes, False),
    ("CPU", lambda r: amount(r.requests.get("cpu", 0)), False),
    ("Memory", lambda r: memory(r.requests.get("memory", 0)), False),
    ("GPU", lambda r: amount(r.gpus), False),
    ("CPUEff", lambda r: percent(r.cpu_efficiency), False),
    ("MemEff", lambda r: percent(r.memory_efficiency), False),
    ("Ended", lambda r: f"{r.finished:%Y-%m-%dT%H:%M:%SZ}", True),
    ("Pods", lambda r: str(sum(task.pods for task in r.tasks)), True),
    ("Failed", lambda r: str(r.pods_failed), True),
    ("Retries", lambda r: str(r.retries), True),
    ("CPUHours", lambda r: amount(r.resource_seconds.get("cpu", 0) / 3600), True),
    ("MaxMemory", lambda r: memory(r.measured.memory_peak_bytes if r.measured else 0), True),
    ("Priority", lambda r: r.priority_class or "-", True),
    ("Reason", lambda r: r.reason or "-", True),
)


def show_table(records: Sequence[JobRecord], *, wide: bool, namespaces: bool) -> None:
    """Print records as a table."""
    cells = [(name, cell) for name, cell, only_wide in _CELLS if wide or not only_wide]
    if namespaces:
        cells.insert(0, ("Namespace", lambda r: r.namespace))
    rows = [{name: cell(record) for name, cell in cells} for record in records]
    show_rows([name for name, _ in cells], rows)


def show_rows(names: Sequence[str], rows: Sequence[Object]) -> None:
    """Print rows of texts by column."""
    columns = [
        Column(name, _cell(name), gap=2, colour=phase_colour if name == "State" else None)
        for name in names
    ]
    table = Table(columns, rows)
    terminal.echo(table.header().rstrip())
    for row in rows:
        terminal.echo(table.row(row).rstrip())


def _cell(name: str) -> Callable[[Object], object]:
    return lambda row: row[name]


def flat(record: JobRecord) -> Object:
    """Return a record as flat columns for CSV."""
    measured = record.measured
    return {
        "id": record.id,
        "uid": record.uid,
        "namespace": record.namespace,
        "name": record.name,
        "user": record.user,
        "queue": record.queue,
        "priority_class": record.priority_class,
        "phase": record.phase,
        "reason": record.reason,
        "submitted": record.submitted.isoformat(),
        "started": record.started.isoformat() if record.started else "",
        "finished": record.finished.isoformat(),
        "wait_seconds": record.wait_seconds,
        "run_seconds": record.run_seconds,
        "exit_codes": " ".join(f"{code}:{count}" for code, count in record.exit_codes.items()),
        "pods": sum(task.pods for task in record.tasks),
        "pods_succeeded": record.pods_succeeded,
        "pods_failed": record.pods_failed,
        "retries": record.retries,
        "cpu": record.requests.get("cpu", 0),
        "memory_bytes": record.requests.get("memory", 0),
        "gpu": record.gpus,
        "cpu_seconds": record.resource_seconds.get("cpu", 0),
        "memory_byte_seconds": record.resource_seconds.get("memory", 0),
        "gpu_seconds": api.gpu_amount(record.resource_seconds),
        "used_cpu_seconds": measured.cpu_seconds if measured else "",
        "peak_memory_bytes": measured.memory_peak_bytes if measured else "",
        "cpu_efficiency": _known(record.cpu_efficiency),
        "memory_efficiency": _known(record.memory_efficiency),
    }


def _known(value: float | None) -> object:
    return "" if value is None else round(value, 4)


def as_csv(rows: Sequence[Object]) -> str:
    """Return rows with the same keys as CSV; nothing for none."""
    if not rows:
        return ""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().rstrip("\n")


def _print(records: Sequence[JobRecord], output: str | None, *, namespaces: bool) -> None:
    if output in ("json", "yaml"):
        items = [api.to_object(record)["record"] for record in records]
        click.echo(json.dumps(items, indent=2) if output == "json" else as_yaml(items).rstrip("\n"))
    elif output == "csv":
        click.echo(as_csv([flat(record) for record in records]) or ",".join(flat_names()))
    elif records:
        show_table(records, wide=output == "wide", namespaces=namespaces)


def flat_names() -> list[str]:
    """Return the columns of CSV."""
    at = datetime.fromtimestamp(0, UTC)
    empty = JobRecord(uid="", namespace="", name="", phase="", submitted=at, finished=at)
    return list(flat(empty))


@click.command(
    cls=VcctlCommand,
    verb="read the history",
    examples=[
        "hekla history",
        "hekla history my-job",
        "hekla history -A --user alice --phase Failed --since 7d",
        "hekla history -A --since 2026-01-01 -o csv > jobs.csv",
    ],
)
@click.argument("name", metavar="[NAME]", required=False, default="")
@namespace_option
@all_namespaces_option
@filter_options
@since_option("")
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=100,
    show_default=True,
    help="Show at most so many.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["wide", "json", "csv", "yaml"]),
    help="Output format.",
)
@source_options
@connected
def history(
    session: Session, name: str, output: str | None, all_namespaces: bool, limit: int, **given: Any
) -> None:
    """Show jobs that have ended, newest first, also jobs that are deleted.

    CPU, Memory and GPU are the requests of all pods together. CPUEff and MemEff are what was used
    divided by what was requested; `-` where it was not measured.
    """
    asked = {"name": name, "all_namespaces": all_namespaces, **given}
    records = read(session, limit=limit + 1, **asked)
    _print(records[:limit], output, namespaces=all_namespaces)
    if not records:
        terminal.echo(nothing_found(session, asked), err=True)
    elif len(records) > limit:
        terminal.echo(f"there are more; --limit {limit * 10} shows more", err=True)


def nothing_found(session: Session, asked: Object) -> str:
    """Return that there are no records, and what to do next."""
    where = "in all namespaces"
    if not asked["all_namespaces"]:
        where = f"in namespace {asked['namespace'] or session.namespace}"
    if since := asked.get("since"):
        where += f" since {since:%Y-%m-%dT%H:%M:%SZ}"
    keys = ("name", "user", "queue", "phase")
    filters = [f"{key} {asked[key]!r}" for key in keys if asked.get(key)]
    text = f"no job has ended {where}"
    if filters:
        text = f"no job that ended {where} has {' and '.join(filters)}"
    step = "`hekla job list` shows the jobs that have not ended"
    if not asked["all_namespaces"]:
        step = f"-A shows all namespaces; {step}"
    return f"{text}\n  {step}"

"""`hekla usage`: what users, queues or namespaces have used, summed over ended jobs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from statistics import mean, median
from typing import Any

import click

from hekla.api.history import JobRecord, gpu_amount, short_user
from hekla.api.wellknown import JobPhase
from hekla.cli import history as job_history
from hekla.cli import terminal
from hekla.cli.history import (
    GIB,
    as_csv,
    duration,
    filter_options,
    percent,
    show_rows,
    since_option,
    source_options,
)
from hekla.cli.vcctl.commands import VcctlCommand
from hekla.cli.vcctl.options import Session, all_namespaces_option, connected, namespace_option
from hekla.units.objects import Object

KEYS = ("user", "queue", "namespace", "phase")
MAX_RECORDS = 200_000
HOUR_S = 3600.0


def usage_by(records: Iterable[JobRecord], keys: Sequence[str]) -> list[Object]:
    """Return a row for each combination of keys, the largest use of GPUs and CPUs first."""
    groups: dict[tuple[str, ...], list[JobRecord]] = {}
    for record in records:
        groups.setdefault(tuple(getattr(record, key) for key in keys), []).append(record)
    rows = [
        {**dict(zip(keys, values, strict=True)), **summed(members)}
        for values, members in groups.items()
    ]
    return sorted(rows, key=lambda row: (-row["gpu_hours"], -row["cpu_hours"], -row["jobs"]))


def summed(records: Sequence[JobRecord]) -> Object:
    """Return the sums over some records; at least one is needed."""
    waits = [record.wait_seconds for record in records]
    failed = sum(record.phase == JobPhase.FAILED for record in records)
    return {
        "jobs": len(records),
        "cpu_hours": _hours(record.resource_seconds.get("cpu", 0) for record in records),
        "gpu_hours": _hours(gpu_amount(record.resource_seconds) for record in records),
        "memory_gib_hours": _hours(
            record.resource_seconds.get("memory", 0) / GIB for record in records
        ),
        "mean_wait_seconds": round(mean(waits), 1),
        "median_wait_seconds": round(median(waits), 1),
        "cpu_efficiency": _efficiency(records, "cpu_seconds", "cpu_requested_seconds"),
        "memory_efficiency": _efficiency(
            records, "memory_byte_seconds", "memory_requested_byte_seconds"
        ),
        "failed_share": round(failed / len(records), 4),
    }


def _hours(seconds: Iterable[float]) -> float:
    return round(sum(seconds) / HOUR_S, 4)


def _efficiency(records: Sequence[JobRecord], used: str, requested: str) -> float | None:
    """Return used divided by requested, over what was measured; None if nothing was."""
    measured = [record.measured for record in records if record.measured is not None]
    # Use without a request has nothing that it could be compared with.
    compared = [each for each in measured if getattr(each, requested)]
    total = sum(getattr(each, requested) for each in compared)
    return round(sum(getattr(each, used) for each in compared) / total, 4) if total else None


def _keys(_: click.Context, param: click.Parameter, text: str) -> list[str]:
    keys = [word.strip() for word in text.split(",") if word.strip()]
    unknown = [key for key in keys if key not in KEYS]
    if unknown or not keys:
        raise click.BadParameter(
            f"{', '.join(unknown) or text!r} is not one of {', '.join(KEYS)}", param=param
        )
    return list(dict.fromkeys(keys))


def table_row(row: Object, keys: Sequence[str]) -> Object:
    """Return a row as texts."""
    return {
        **{key.capitalize(): short_user(row[key]) or "-" for key in keys},
        "Jobs": str(row["jobs"]),
        "CPUHours": f"{row['cpu_hours']:.2f}",
        "GPUHours": f"{row['gpu_hours']:.2f}",
        "GiBHours": f"{row['memory_gib_hours']:.2f}",
        "MeanWait": duration(row["mean_wait_seconds"]),
        "MedianWait": duration(row["median_wait_seconds"]),
        "CPUEff": percent(row["cpu_efficiency"]),
        "MemEff": percent(row["memory_efficiency"]),
        "Failed": percent(row["failed_share"]),
    }


@click.command(
    cls=VcctlCommand,
    verb="read the usage",
    examples=[
        "hekla usage -A",
        "hekla usage -A --by user,queue --since 30d",
        "hekla usage -A --by namespace --since 2026-01-01 -o csv > usage.csv",
    ],
)
@click.option(
    "--by",
    "keys",
    default="user",
    show_default=True,
    callback=_keys,
    metavar="KEYS",
    help="One or several of user, queue, namespace and phase.",
)
@namespace_option
@all_namespaces_option
@filter_options
@since_option("7d")
@click.option("-o", "--output", type=click.Choice(["json", "csv"]), help="Output format.")
@source_options
@connected
def usage(session: Session, keys: list[str], output: str | None, **given: Any) -> None:
    """Show what users, queues or namespaces have used, summed over jobs that have ended.

    Hours are what was requested times the time for which pods held it. A job counts where it ended,
    with all of its hours; jobs that still run are not included.
    """
    records = job_history.read(session, limit=MAX_RECORDS + 1, **given)
    if len(records) > MAX_RECORDS:
        terminal.echo(f"only the last {MAX_RECORDS} jobs are counted; shorten --since", err=True)
    rows = usage_by(records[:MAX_RECORDS], keys)
    if output == "json":
        click.echo(json.dumps(rows, indent=2))
    elif output == "csv":
        click.echo(as_csv(rows) or ",".join([*keys, *_COLUMNS]))
    elif rows:
        shown = [table_row(row, keys) for row in rows]
        if len(rows) > 1:
            total = table_row({**dict.fromkeys(keys, ""), **summed(records[:MAX_RECORDS])}, keys)
            shown.append({**total, keys[0].capitalize(): "total"})
        show_rows(list(shown[0]), shown)
    if not records:
        terminal.echo(job_history.nothing_found(session, given), err=True)


_COLUMNS = (
    "jobs",
    "cpu_hours",
    "gpu_hours",
    "memory_gib_hours",
    "mean_wait_seconds",
    "median_wait_seconds",
    "cpu_efficiency",
    "memory_efficiency",
    "failed_share",
)

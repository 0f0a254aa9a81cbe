"""`hekla prune`: delete jobs that ended long ago, their pods, and files that they left.

The plan is computed first and shown. Nothing is deleted before that is confirmed.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from typing import Any

import click

from hekla.cli import terminal
from hekla.cli.history import memory, show_rows
from hekla.cli.prunable import EndedObject, LocalFiles
from hekla.cli.prune_plan import Plan, await_removal, carry_out, make_plan
from hekla.cli.vcctl.commands import VcctlCommand
from hekla.cli.vcctl.errors import USAGE, CommandFailed
from hekla.cli.vcctl.options import Session, all_namespaces_option, connected, namespace_option
from hekla.units.durations import DurationError, parse_age


def _age(_: click.Context, param: click.Parameter, text: str) -> float:
    try:
        return parse_age(text)
    except DurationError as error:
        raise click.BadParameter(str(error), param=param) from error


@click.command(
    cls=VcctlCommand,
    examples=["hekla prune --dry-run", "hekla prune --older-than 30d -A --yes"],
)
@click.option(
    "--older-than",
    "age_s",
    default="7d",
    show_default=True,
    callback=_age,
    metavar="AGE",
    help="Only what ended, or was last used, longer ago than 7d, 36h, ….",
)
@click.option("--dry-run", is_flag=True, help="List what would be deleted, and delete nothing.")
@click.option("-y", "--yes", is_flag=True, help="Delete without a question.")
@namespace_option
@all_namespaces_option
@connected
def prune(
    session: Session, age_s: float, dry_run: bool, yes: bool, namespace: str, all_namespaces: bool
) -> None:
    """Delete jobs that ended or were aborted long ago, with their pods and logs.

    Also ended pods without an owner, and on the machine of `hekla up` the kept logs of deleted
    pods, and your environments and snapshots (`hekla run --requirements`, `--sync`) that no job
    uses. What another object owns is left to its owner. Records of jobs stay: see `hekla history`.
    """
    place = None if all_namespaces else namespace or session.namespace
    where = "all namespaces" if place is None else f"namespace {place}"
    before = time.time() - age_s
    plan = make_plan(session, place, before)
    since = f"before {_time(before)} in {where}"
    if not plan:
        terminal.echo(f"nothing to prune: nothing that you may delete ended {since}")
        _note_forbidden(plan)
        return
    if dry_run:
        rows = [*map(_row, plan.objects), *map(_row, plan.files)]
        show_rows(["Kind", "Namespace", "Name", "Ended", "Size"], rows)
    terminal.echo(f"{plan.counts()} ended {since}; {_size(plan)} on this machine's disk")
    _note_forbidden(plan)
    if dry_run:
        return
    if not yes:
        _confirm()
    _delete(session, plan)


def _delete(session: Session, plan: Plan) -> None:
    known_forbidden = plan.forbidden.total()
    deleted = carry_out(session, plan)
    remaining = await_removal(plan)
    freed = "" if remaining else f", freed {_size(plan)}"
    terminal.echo(f"deleted {plan.counts()}{freed}")
    if others := len(plan.objects) - deleted:
        terminal.echo(f"{others} of them were gone, or not the same any more", err=True)
    if remaining:
        terminal.echo(
            f"{remaining} pods are still being removed; `hekla prune` removes their logs later",
            err=True,
        )
    if plan.forbidden.total() > known_forbidden:
        raise CommandFailed("some objects could not be deleted: your rights have changed")


def _size(plan: Plan) -> str:
    return memory(plan.size_bytes) if plan.size_bytes else "0"


def _time(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _note_forbidden(plan: Plan) -> None:
    for namespace, count in sorted(plan.forbidden.items()):
        terminal.echo(f"{count} more in namespace {namespace} are not yours to delete", err=True)


def _row(each: EndedObject | LocalFiles) -> dict[str, Any]:
    return {
        "Kind": each.kind,
        "Namespace": each.namespace or "-",
        "Name": each.name,
        "Ended": _time(each.used_at if isinstance(each, LocalFiles) else each.ended_at),
        "Size": memory(each.size_bytes) if isinstance(each, LocalFiles) else "-",
    }


def _confirm() -> None:
    if not sys.stdin.isatty():
        raise CommandFailed(
            "nothing was deleted: there is no terminal for the question",
            hint="add --yes to delete, or --dry-run to see what would be deleted",
            code=USAGE,
        )
    if not click.confirm("delete?"):
        terminal.echo("nothing was deleted")
        click.get_current_context().exit(USAGE)

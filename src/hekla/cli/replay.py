"""`hekla replay`: show a decision log cycle by cycle, compared with today's decisions."""

from __future__ import annotations

from pathlib import Path

import click

from hekla.cli import terminal
from hekla.scheduler.errors import SchedulerError
from hekla.scheduler.plugins.discovery import discover
from hekla.scheduler.service.replay import Outcome, replay
from hekla.units.timestamps import format_time

MAX_DIFFERENCE = 40


def run_replay(file: Path, cycle: int | None, conf: Path | None, plugins_dir: Path | None) -> int:
    """Print the comparison; return 0 if every plan is the same."""
    seen = different = 0
    try:
        text = None if conf is None else conf.read_text()
        for outcome in replay(file, discover(plugins_dir), only=cycle, conf=text):
            seen += 1
            different += not outcome.is_same
            _show(outcome, in_full=cycle is not None)
    except (SchedulerError, OSError) as error:
        raise click.ClickException(str(error)) from error
    if not seen:
        what = "no cycle" if cycle is None else f"no cycle {cycle}"
        raise click.ClickException(f"{file}: {what} in the log")
    terminal.echo(
        f"{seen} cycles, {seen - different} with the same plan, {different} with a different plan"
    )
    return 1 if different else 0


def _show(outcome: Outcome, *, in_full: bool) -> None:
    counts = [
        f"{outcome.count(kind)} {name}"
        for kind, name in (("Bind", "binds"), ("Evict", "evictions"))
        if outcome.count(kind)
    ]
    verdict = "same plan" if outcome.is_same else "different plan"
    did = ", ".join(counts) or "status only"
    terminal.echo(f"cycle {outcome.number} at {format_time(outcome.now)}: {did}: {verdict}")
    for failure in outcome.recorded.failures:
        terminal.echo(f"  plugin {failure['plugin']} failed in this cycle: {failure['error']}")
    difference = outcome.difference
    lines = difference if in_full else difference[:MAX_DIFFERENCE]
    for line in lines:
        terminal.echo(f"  {line}")
    if len(lines) < len(difference):
        left = len(difference) - len(lines)
        terminal.echo(f"  … {left} more lines: --cycle {outcome.number} shows all")
    if in_full:
        for key, why in sorted(outcome.verdicts.items()):
            terminal.echo(f"  {key} is pending: {why}")

"""`hekla top`: nodes, queues, running and waiting jobs on one screen, kept current by watches."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from functools import partial
from typing import Final

import click

from hekla.cli import terminal
from hekla.cli.capacity import overview
from hekla.cli.capacity.cluster import NODE_KIND, POD_KIND, Kind, Watched, watch
from hekla.cli.capacity.overview import Overview
from hekla.cli.capacity.page import Line, page
from hekla.cli.capacity.screen import Screen, styled
from hekla.cli.capacity.usage import node_uses
from hekla.cli.vcctl.commands import VcctlCommand
from hekla.cli.vcctl.options import Session, connected, namespace_option
from hekla.cli.vcctl.queue_top import uses_deserved
from hekla.kube.client import Client
from hekla.kube.resources import JOBS, PODGROUPS, QUEUES

QUEUE_KIND: Final = Kind(QUEUES, overview.queue_info)
GROUP_KIND: Final = Kind(PODGROUPS, overview.group_info)
JOB_KIND: Final = Kind(JOBS, overview.job_info)
KINDS: Final = (NODE_KIND, POD_KIND, QUEUE_KIND, GROUP_KIND, JOB_KIND)
TICK_S: Final = 1.0
"""Ages are drawn again this often."""
IDLE_SHARE: Final = 9
"""Computing the overview takes at most a tenth of the time."""
MIN_PAUSE_S: Final = 0.3


@click.command(
    cls=VcctlCommand,
    verb="show the cluster",
    examples=["hekla top", "hekla top --once", "hekla top -n ml", "hekla top -o json"],
)
@namespace_option
@click.option("--once", is_flag=True, help="Print once; so does a pipe.")
@click.option(
    "-o", "--output", type=click.Choice(["json"]), metavar="FORMAT", help="json: print once."
)
@connected
def top(session: Session, namespace: str, once: bool, output: str | None) -> None:
    """Show nodes, queues, running jobs, and waiting jobs with the reason.

    On a terminal the screen follows the cluster: q quits, j/k and the arrow keys scroll. Allocated
    is what pods request; their use is not measured. What you may not see is named. -n shows the
    jobs of one namespace.
    """
    logging.getLogger("hekla").addHandler(logging.NullHandler())
    is_live = sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and not (once or output)
    asyncio.run(_top(session, namespace, output or "", is_live=is_live))


async def _top(session: Session, namespace: str, output: str, *, is_live: bool) -> None:
    # Once: a new configuration of the scheduler is rare.
    has_deserved = await asyncio.to_thread(uses_deserved, session.client, "")
    async with (
        Client(session.config, component="hekla") as client,
        watch(client, KINDS, namespace or session.namespace) as watched,
    ):
        if is_live:
            await _follow(watched, namespace, session.config.server, has_deserved=has_deserved)
            return
        found = _overview(watched, namespace, has_deserved=has_deserved)
        if output == "json":
            click.echo(json.dumps(overview.as_json(found), indent=4, ensure_ascii=False))
            return
        lines = [styled(line, None) for line in page(found, time.time())]
        terminal.echo("\n".join(lines).rstrip("\n"))


def _overview(watched: Watched, namespace: str, *, has_deserved: bool) -> Overview:
    def in_scope(one: overview.GroupInfo | overview.JobInfo) -> bool:
        return not namespace or one.namespace == namespace

    pods = watched.pods
    return overview.overview(
        node_uses(watched.nodes, pods),
        pods,
        watched.objects(QUEUE_KIND),
        filter(in_scope, watched.objects(GROUP_KIND)),
        filter(in_scope, watched.objects(JOB_KIND)),
        watched.scope,
        has_deserved=has_deserved,
    )


async def _follow(watched: Watched, namespace: str, server: str, *, has_deserved: bool) -> None:
    """Draw the page until the user quits."""
    woken = watched.changed
    overview_now = partial(_overview, watched, namespace, has_deserved=has_deserved)
    found, lines, next_at = overview_now(), list[Line](), 0.0
    is_stale = False
    with Screen(woken) as screen:
        while not screen.is_closed:
            started = time.monotonic()
            if is_stale and started >= next_at:
                found, is_stale = overview_now(), False
                took = time.monotonic() - started
                next_at = started + max(MIN_PAUSE_S, took * IDLE_SHARE)
            lines = list(page(found, time.time()))
            screen.draw(_head(watched, server), lines)
            woken.clear()
            timeout = max(0.0, next_at - time.monotonic()) if is_stale else TICK_S
            try:
                await asyncio.wait_for(woken.wait(), timeout)
            except TimeoutError:
                continue
            is_stale = True


def _head(watched: Watched, server: str) -> Line:
    clock = time.strftime("%H:%M:%S")
    problem = watched.problem
    if problem is not None:
        return Line(f"hekla top  {clock}  not current, trying again: {problem}", "bad")
    return Line(f"hekla top  {clock}  {server}", "title")

"""`hekla drain` and `hekla undrain`: take nodes out of service, and return them.

As in Slurm, a drained node takes no new pods and those on it finish. `--evict` ends them now.
"""

from __future__ import annotations

import time

import click

from hekla.api.drain import MAX_REASON, Drain, drain_of, draining, undraining
from hekla.cli import terminal
from hekla.cli.capacity.eviction import NodeEmptier, TookTooLong, without_controller
from hekla.cli.capacity.nodes import find_node
from hekla.cli.capacity.usage import node_info, node_uses
from hekla.cli.vcctl.commands import VcctlCommand, warn
from hekla.cli.vcctl.errors import TIMED_OUT, CommandFailed
from hekla.cli.vcctl.options import Session, complete_names, connected, duration
from hekla.cli.vcctl.output import name_of
from hekla.kube.errors import ApiError
from hekla.kube.resources import NODES, SELF_SUBJECT_REVIEWS
from hekla.units.objects import Object
from hekla.units.timestamps import format_time

SHOWN = 5
"""Names that a message lists before it counts the rest."""


@click.command(
    cls=VcctlCommand,
    examples=[
        "hekla drain n1 --reason 'new disk'",
        "hekla drain n1 n2 --reason 'kernel update' --wait --timeout 2h",
        "hekla drain n1 --reason 'fan broken' --evict --wait",
    ],
)
@click.argument("names", metavar="NODE…", nargs=-1, shell_complete=complete_names(NODES))
@click.option(
    "-r",
    "--reason",
    default="",
    metavar="TEXT",
    help="Why; pending jobs and `hekla nodes` show it.",
)
@click.option("--evict", is_flag=True, help="Evict the pods now; by default they finish.")
@click.option(
    "--grace-period",
    type=click.IntRange(0),
    metavar="SECONDS",
    help="Time for evicted pods to end.  [default: their own]",
)
@click.option("--force", is_flag=True, help="Evict also pods that nothing creates again.")
@click.option("--wait", is_flag=True, help="Return when no pods run there any more.")
@click.option(
    "--timeout",
    callback=duration,
    help="How long to wait and to try evictions again, such as 90s or 5m.  [default: none]",
)
@connected
def drain(
    session: Session,
    names: tuple[str, ...],
    reason: str,
    evict: bool,
    grace_period: int | None,
    force: bool,
    wait: bool,
    timeout: float | None,
) -> None:
    """Take nodes out of service: no new pods; those that run there finish.

    `hekla undrain` returns them. A drain survives restarts. With --evict the pods are evicted;
    disruption budgets are respected, and refused evictions are tried again until --timeout. Exits
    with 124 after the timeout; the nodes stay drained.
    """
    nodes = _named(session, names, "drain")
    if (grace_period is not None or force) and not evict:
        raise click.UsageError("--grace-period and --force apply to --evict")
    if timeout is not None and not (evict or wait):
        raise click.UsageError("--timeout applies to --evict and --wait")
    reasons = {name_of(node): _reason_of(node, reason) for node in nodes}
    emptiers = [
        NodeEmptier(session.client, name_of(node), terminal.echo, grace_period, timeout)
        for node in nodes
    ]
    if evict and not force:
        for emptier in emptiers:
            _refuse_to_lose_pods(emptier)
    by = _user(session)
    for emptier in emptiers:
        patch = draining(Drain(reasons[emptier.node], by, format_time(time.time())))
        session.client.patch(NODES, emptier.node, patch)
        _report(emptier)
    _warn_without_nodes(session, names)
    for emptier in emptiers:
        _empty(emptier, evict=evict, wait=wait)


@click.command(cls=VcctlCommand, examples=["hekla undrain n1"])
@click.argument("names", metavar="NODE…", nargs=-1, shell_complete=complete_names(NODES))
@connected
def undrain(session: Session, names: tuple[str, ...]) -> None:
    """Return drained nodes to service: they take pods again."""
    for node in _named(session, names, "undrain"):
        name = name_of(node)
        if drain_of(node) is None:
            terminal.echo(f"node {name} is not drained")
            continue
        info = node_info(session.client.patch(NODES, name, undraining()))
        terminal.echo(f"node {name} takes pods again")
        if info.ready != "True":
            warn(f"node {name} is not ready, so it gets none yet: {info.problem}")


def _named(session: Session, names: tuple[str, ...], verb: str) -> list[Object]:
    """Return the named nodes; nothing is changed if one of them does not exist."""
    if not names:
        raise CommandFailed(
            f"no node to {verb} is given", hint="`hekla nodes` lists the nodes of the cluster"
        )
    return [find_node(session, name) for name in dict.fromkeys(names)]


def _reason_of(node: Object, given: str) -> str:
    """Return the reason of a drain: the given one, or that of the drain that it has already."""
    reason = " ".join(given.split())
    if len(reason) > MAX_REASON:
        raise CommandFailed(f"the reason has {len(reason)} characters; at most {MAX_REASON} fit")
    known = drain_of(node)
    if not reason and known is not None:
        reason = known.reason
    if not reason:
        raise CommandFailed(
            f"node {name_of(node)} needs a reason: users whose jobs wait for it will read it",
            hint="--reason 'new disk'",
        )
    return reason


def _user(session: Session) -> str:
    """Return the caller's user name, as the server knows it; empty if it does not say."""
    try:
        answer = session.client.create(SELF_SUBJECT_REVIEWS, {})
    except ApiError:  # Kubernetes before 1.28, or no right to ask
        return ""
    return str(((answer.get("status") or {}).get("userInfo") or {}).get("username") or "")


def _refuse_to_lose_pods(emptier: NodeEmptier) -> None:
    lost = without_controller(emptier.pods())
    if lost:
        raise CommandFailed(
            f"nothing would create these pods of node {emptier.node} again: {_listed(lost)}",
            hint="--force evicts them too; without --evict they finish",
        )


def _report(emptier: NodeEmptier) -> None:
    pods = len(emptier.pods())
    if not pods:
        terminal.echo(f"node {emptier.node} is drained")
        return
    runs = "1 pod still runs" if pods == 1 else f"{pods} pods still run"
    terminal.echo(f"node {emptier.node} is draining: it takes no new pods, and {runs} there")


def _warn_without_nodes(session: Session, drained: tuple[str, ...]) -> None:
    """Say what a drain means if no other node takes pods."""
    infos = [node_info(node) for node in session.client.list(NODES)]
    if not any(use.takes_pods for use in node_uses(infos, ())):
        command = f"hekla undrain {drained[0]}"
        warn(f"no node takes pods now: all new and pending jobs wait until `{command}`")


def _empty(emptier: NodeEmptier, *, evict: bool, wait: bool) -> None:
    try:
        if evict:
            emptier.evict()
        if wait:
            emptier.until_empty()
            terminal.echo(f"node {emptier.node} is drained")
    except TookTooLong as error:
        raise CommandFailed(
            f"node {emptier.node} is still draining; pods on it: {_listed(error.remaining)}",
            hint="it stays drained; the same command continues",
            code=TIMED_OUT,
        ) from error


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more

"""`hekla job retry` and `vcctl job retry`."""

from __future__ import annotations

import click

from hekla.cli import terminal
from hekla.cli.vcctl.commands import VcctlCommand
from hekla.cli.vcctl.errors import CommandFailed
from hekla.cli.vcctl.options import Session, Target, connected, one_job
from hekla.cli.vcctl.output import name_of


@click.command(
    cls=VcctlCommand, examples=["vcctl job retry my-job", "vcctl job retry -N my-job -n ml"]
)
@one_job
@connected
def retry(session: Session, target: Target) -> None:
    """Run a failed job again, as a new job NAME-retry-1; of an array only what did not succeed."""
    from hekla.api.arrays import array_of
    from hekla.cli.vcctl.jobs import find_job
    from hekla.sdk.handle import JobHandle
    from hekla.sdk.job_retry import CannotRetry

    job = JobHandle(session.client, find_job(session, target, "retry"))
    try:
        retried = job.retry()
    except CannotRetry as error:
        raise CommandFailed(str(error)) from error
    terminal.echo(f"run job {name_of(retried.object)} successfully")
    if (array := array_of(retried.object)) is not None:
        from hekla.api.arrays import compress
        from hekla.sdk.array_status import MAX_RANGES

        indices = compress(array.indices, limit=MAX_RANGES)
        terminal.echo(f"  indices {indices}", err=True)

"""`vcctl jobflow`: flows of jobs."""

from __future__ import annotations

import click

from hekla.cli.vcctl.commands import Noun
from hekla.cli.vcctl.output import Column, age_of, named, phase_colour, spaced, text_at
from hekla.cli.vcctl.verbs import Verbs, add_verbs
from hekla.kube.resources import JOB_FLOWS

FLOW_COLUMNS = (
    Column("Name", named, gap=4),
    Column("Namespace", spaced, gap=4),
    Column("Phase", text_at("status", "state", "phase"), gap=4, colour=phase_colour),
    Column("Age", age_of, gap=4),
)


@click.group(cls=Noun)
def jobflow() -> None:
    """Create, list and delete flows: jobs with dependencies."""


FLOWS = Verbs(JOB_FLOWS, "jobflow", "jobflow name must be specified", FLOW_COLUMNS)
add_verbs(jobflow, FLOWS)

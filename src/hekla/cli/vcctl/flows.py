"""`vcctl jobflow`: flows of jobs."""

from __future__ import annotations

import click

from hekla.cli.vcctl.commands import VcctlGroup
from hekla.cli.vcctl.output import Column, age_of, name_of, namespace_of, phase_colour, text_at
from hekla.cli.vcctl.verbs import Verbs, add_verbs
from hekla.kube.resources import JOB_FLOWS

FLOW_COLUMNS = (
    Column("Name", name_of, gap=4),
    Column("Namespace", namespace_of, gap=4),
    Column("Phase", text_at("status", "state", "phase"), gap=4, colour=phase_colour),
    Column("Age", age_of, gap=4),
)


@click.group(cls=VcctlGroup)
def jobflow() -> None:
    """Create, list and delete flows: jobs with dependencies."""


FLOWS = Verbs(JOB_FLOWS, "jobflow", "jobflow name must be specified", FLOW_COLUMNS)
add_verbs(jobflow, FLOWS)

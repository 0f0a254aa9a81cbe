"""`vcctl jobtemplate`: templates of the jobs in flows."""

from __future__ import annotations

import click

from hekla.cli.vcctl.commands import VcctlGroup
from hekla.cli.vcctl.output import Column, name_of, namespace_of
from hekla.cli.vcctl.verbs import Verbs, add_verbs
from hekla.kube.resources import JOB_TEMPLATES


@click.group(cls=VcctlGroup)
def jobtemplate() -> None:
    """Create, list and delete the templates of flows."""


TEMPLATES = Verbs(
    JOB_TEMPLATES,
    "jobtemplate",
    "job template name must be specified",
    (Column("Name", name_of, gap=4), Column("Namespace", namespace_of, gap=4)),
)
add_verbs(jobtemplate, TEMPLATES)

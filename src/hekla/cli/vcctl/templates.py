"""`vcctl jobtemplate`: templates of the jobs in flows."""

from __future__ import annotations

import click

from hekla.cli.vcctl.commands import Noun
from hekla.cli.vcctl.output import Column, named, spaced
from hekla.cli.vcctl.verbs import Verbs, add_verbs
from hekla.kube.resources import JOB_TEMPLATES


@click.group(cls=Noun)
def jobtemplate() -> None:
    """Create, list and delete the templates of flows."""


TEMPLATES = Verbs(
    JOB_TEMPLATES,
    "jobtemplate",
    "job template name must be specified",
    (Column("Name", named, gap=4), Column("Namespace", spaced, gap=4)),
)
add_verbs(jobtemplate, TEMPLATES)

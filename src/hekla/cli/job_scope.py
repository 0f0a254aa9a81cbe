"""Selectors with which a command watches its own jobs, and not all of a namespace. Pure.

A namespace may have tens of thousands of pods of other jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hekla.api.wellknown import JOB_NAME
from hekla.sdk import job_commands
from hekla.units.objects import Object

MAX_NAMES: Final = 20
"""Names in one selector; of more jobs all pods are watched."""
WARNINGS: Final = "type=Warning"
"""Field selector of the events that are reasons; events of one job have no common field."""


class JobScope:
    """The selectors of some jobs of one namespace."""

    def __init__(self, jobs: Sequence[Object]) -> None:
        self._jobs = jobs

    @property
    def job_field(self) -> str:
        """The field selector of the job; of several jobs all are watched."""
        return f"metadata.name={self._jobs[0]['metadata']['name']}" if len(self._jobs) == 1 else ""

    @property
    def pod_labels(self) -> str:
        """The label selector of their pods."""
        names = sorted(str(job["metadata"]["name"]) for job in self._jobs)
        if len(names) == 1:
            return job_commands.pods_selector(names[0])
        return f"{JOB_NAME} in ({','.join(names)})" if 0 < len(names) <= MAX_NAMES else JOB_NAME

    @property
    def group_field(self) -> str:
        """The field selector of the PodGroup of one job."""
        if len(self._jobs) != 1:
            return ""
        return f"metadata.name={job_commands.group_name(self._jobs[0])}"

"""Jobs as HTML, for notebooks: they call `_repr_html_` of the last value of a cell.

Note: names and messages come from other users of the cluster, so all of them are escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from hekla.api.wellknown import JobPhase
from hekla.sdk import job_phases
from hekla.sdk.explanation import queue_of
from hekla.units.objects import Object

if TYPE_CHECKING:
    from hekla.sdk.handle import JobHandle

MAX_ROWS = 200
COUNTS = ("pending", "running", "succeeded", "failed")
_COLOURS = {
    JobPhase.COMPLETED: "#1a7f37",
    JobPhase.RUNNING: "#0969da",
    JobPhase.FAILED: "#cf222e",
    JobPhase.TERMINATED: "#cf222e",
    JobPhase.ABORTED: "#9a6700",
    JobPhase.PENDING: "#9a6700",
}


def jobs_html(jobs: Sequence[Object]) -> str:
    """Return a table with a row for each job, at most `MAX_ROWS`."""
    rows = "".join(map(_row, jobs[:MAX_ROWS]))
    more = len(jobs) - MAX_ROWS
    note = f"<p>and {more} more jobs</p>" if more > 0 else ""
    titles = ("namespace", "name", "queue", "phase", *COUNTS)
    head = "".join(f"<th>{title}</th>" for title in titles)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{note}"


class JobList(list["JobHandle"]):
    """Jobs that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        return jobs_html([job.object for job in self])


def _row(job: Object) -> str:
    metadata, status = job["metadata"], job.get("status") or {}
    cells = [escape(str(metadata[key])) for key in ("namespace", "name")]
    cells += [escape(queue_of(job)), _phase(job_phases.phase_of(job))]
    cells += [str(int(status.get(count) or 0)) for count in COUNTS]
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _phase(phase: str) -> str:
    colour = _COLOURS.get(phase, "inherit")
    return f'<span style="color:{colour}">{escape(phase)}</span>'

"""What `hekla run` shows of its jobs: a picture of their state, and two ways to show it.

`Jobs` is fed with objects and knows what each job does; `panel` draws it. On a terminal
`LiveScreen` keeps the picture below the output that scrolls by; elsewhere `PlainScreen` says each
change once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import click

from hekla.api.wellknown import DEFAULT_QUEUE, JobPhase, PodGroupPhase, PodPhase
from hekla.sdk import job_commands, job_phases
from hekla.units.objects import Object
from hekla.units.timestamps import parse_time

BAR = 20
REDRAW_S = 0.1
# In the order of a pod's life backwards: what is done fills the bar from the left.
STEPS = (
    (PodPhase.SUCCEEDED, "succeeded", "█"),
    (PodPhase.FAILED, "failed", "×"),
    (PodPhase.RUNNING, "running", "▒"),
    (PodPhase.PENDING, "pending", "·"),
)
WAITING = (PodGroupPhase.PENDING, PodGroupPhase.INQUEUE, "")


@dataclass
class Jobs:
    """The jobs that are followed, and what is known of them."""

    followed: dict[str, Object] = field(default_factory=dict)
    """By UID."""
    groups: dict[tuple[str, str], Object] = field(default_factory=dict)
    """All pod groups, by namespace and name: the place in the queue depends on the others."""

    def phase(self, uid: str) -> str:
        return job_phases.phase_of(self.followed[uid])

    def reason_to_wait(self, uid: str) -> str:
        """The scheduler's verdict on a job that is not placed."""
        if self.phase(uid) not in (JobPhase.PENDING, JobPhase.RUNNING):
            return ""
        group = self._group(uid)
        for condition in ((group or {}).get("status") or {}).get("conditions") or ():
            if condition.get("type") == "Unschedulable" and condition.get("status") == "True":
                return str(condition.get("message") or condition.get("reason") or "")
        return ""

    def place_in_queue(self, uid: str) -> tuple[int, int] | None:
        """`(2, 5)`: the second of five that wait in the job's queue, the oldest first."""
        group = self._group(uid)
        if group is None or not _waits(group):
            return None
        queue = _queue_of(group)
        waiting = sorted(
            (_since(one), key)
            for key, one in self.groups.items()
            if _waits(one) and _queue_of(one) == queue
        )
        key = (group["metadata"]["namespace"], group["metadata"]["name"])
        return waiting.index((_since(group), key)) + 1, len(waiting)

    def _group(self, uid: str) -> Object | None:
        metadata = self.followed[uid]["metadata"]
        return self.groups.get((metadata["namespace"], f"{metadata['name']}-{uid}"))


def _waits(group: Object) -> bool:
    return ((group.get("status") or {}).get("phase") or "") in WAITING


def _queue_of(group: Object) -> str:
    return str(group["spec"].get("queue") or DEFAULT_QUEUE)


def _since(group: Object) -> str:
    return str(group["metadata"].get("creationTimestamp") or "")


def panel(jobs: Jobs, now: float) -> Iterator[str]:
    """The picture, line by line."""
    for uid, job in jobs.followed.items():
        yield f"job {job['metadata']['name']}  {_headline(jobs, uid, job, now)}"
        width = max((len(task.get("name", "")) for task in job_commands.tasks_of(job)), default=0)
        for task in job_commands.tasks_of(job):
            yield f"  {task.get('name', ''):<{width}}  {_progress(job, task)}"
        if reason := jobs.reason_to_wait(uid):
            yield f"  waiting: {reason}"


def _headline(jobs: Jobs, uid: str, job: Object, now: float) -> str:
    words = [jobs.phase(uid)]
    created = job["metadata"].get("creationTimestamp")
    if created and jobs.phase(uid) not in JobPhase.FINISHED:
        words.append(f"{max(0.0, now - parse_time(created)):.0f}s")
    words.append(f"queue {job['spec'].get('queue') or DEFAULT_QUEUE}")
    if place := jobs.place_in_queue(uid):
        words.append(f"number {place[0]} of {place[1]} waiting there")
    return "  ".join(words)


def _progress(job: Object, task: Object) -> str:
    total = int(task.get("replicas") or 0)
    counted = ((job.get("status") or {}).get("taskStatusCount") or {}).get(task.get("name")) or {}
    phases = counted.get("phase") or {}
    bar, words = "", []
    for phase, word, sign in STEPS:
        count = int(phases.get(phase) or 0)
        if count:
            words.append(f"{count} {word}")
            bar += sign * max(1, count * BAR // max(total, 1))
    return f"{bar[:BAR]:·<{BAR}}  {', '.join(words) or 'no pods yet'} of {total}"


class Screen(Protocol):
    """Where a run is shown."""

    def say(self, line: str) -> None: ...
    def output(self, pod: str, line: str) -> None: ...
    def changed(self) -> None: ...
    def close(self) -> None: ...


class PlainScreen:
    """One line for each thing that happens: for files, pipes and CI."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._told: dict[str, str] = {}

    def say(self, line: str) -> None:
        click.echo(line)

    def output(self, pod: str, line: str) -> None:
        click.echo(f"{pod} | {line}")

    def changed(self) -> None:
        for uid, job in self._jobs.followed.items():
            self._tell(uid, f"job {job['metadata']['name']}: {self._jobs.phase(uid)}")
            if reason := self._jobs.reason_to_wait(uid):
                self._tell(f"{uid}/why", f"job {job['metadata']['name']} waits: {reason}")

    def _tell(self, key: str, line: str) -> None:
        if self._told.get(key) != line:
            self._told[key] = line
            click.echo(line)

    def close(self) -> None:
        """Nothing is held back."""


class LiveScreen:
    """Output scrolls by above, the state of the jobs stays below."""

    COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")

    def __init__(self, jobs: Jobs, now: Callable[[], float]) -> None:
        # Imported where it draws: a run in a pipe never pays for it.
        from rich.console import Console, Group
        from rich.live import Live
        from rich.text import Text

        self._jobs, self._now, self._text, self._group = jobs, now, Text, Group
        self._console = Console()
        self._live = Live(console=self._console, get_renderable=self._draw, auto_refresh=False)
        self._colour_of: dict[str, str] = {}
        self._drawn_at = 0.0
        self._live.start()

    def _draw(self) -> Any:
        lines = [self._text("─" * self._console.width, style="dim")]
        for line in panel(self._jobs, self._now()):
            waits = line.startswith("  waiting")
            lines.append(
                self._text(
                    line,
                    style="yellow" if waits else "",
                    no_wrap=not waits,
                    overflow="fold" if waits else "ellipsis",
                )
            )
        return self._group(*lines)

    def say(self, line: str) -> None:
        self._console.print(self._text(line))

    def output(self, pod: str, line: str) -> None:
        colour = self._colour_of.setdefault(
            pod, self.COLOURS[len(self._colour_of) % len(self.COLOURS)]
        )
        shown = self._text.assemble((f"{pod} │ ", colour))
        # Programs colour their output too; as plain text their escapes would show as signs.
        shown.append_text(self._text.from_ansi(line))
        self._console.print(shown, soft_wrap=True)

    def changed(self) -> None:
        """Draw again, but not more often than an eye can follow."""
        now = self._now()
        if abs(now - self._drawn_at) >= REDRAW_S:
            self._drawn_at = now
            self._live.refresh()

    def close(self) -> None:
        self._live.refresh()
        self._live.stop()

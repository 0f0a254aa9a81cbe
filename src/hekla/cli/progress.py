"""The progress display of `hekla run`.

`Jobs` holds the followed jobs and PodGroups; `panel` renders their state. On a terminal
`LiveScreen` shows the panel below the output; elsewhere `PlainScreen` prints each change once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import click

from hekla.api import arrays
from hekla.api.wellknown import (
    DEFAULT_NAMESPACE,
    DEFAULT_QUEUE,
    JobPhase,
    PodGroupPhase,
    PodPhase,
)
from hekla.cli import terminal
from hekla.cli.interrupts import discard_unseen_output
from hekla.cli.reason_log import ReasonLog
from hekla.sdk import job_commands, job_phases, pending_reasons
from hekla.sdk.array_status import summary
from hekla.units.objects import Object
from hekla.units.timestamps import parse_time

BAR = 20
PANEL_REASONS = 3
WAITING_PHASES = (JobPhase.PENDING, JobPhase.RUNNING, JobPhase.RESTARTING)
"""Phases in which something may keep pods of a job from running."""
LAST_PHASES = (*JobPhase.FINISHED, JobPhase.ABORTED)
LAST_OUTPUT_S = 3.0
"""How long the last phase of a job waits for its output while other jobs run."""
HELP = "what helps:"
"""A verdict of the scheduler that names the next step itself."""
REDRAW_S = 0.1
TENTHS = 10
NO_MILESTONE = "0 False"
"""What `_milestone` returns of an array that has just started."""
# Finished pods fill the bar from the left.
STEPS = (
    (PodPhase.SUCCEEDED, "succeeded", "█"),
    (PodPhase.FAILED, "failed", "×"),
    (PodPhase.RUNNING, "running", "▒"),
    (PodPhase.PENDING, "pending", "·"),
)
PENDING_PHASES = (PodGroupPhase.PENDING, PodGroupPhase.INQUEUE, "")


@dataclass
class Jobs:
    """The followed jobs and their PodGroups."""

    followed: dict[str, Object] = field(default_factory=dict)
    """By UID."""
    groups: dict[tuple[str, str], Object] = field(default_factory=dict)
    """All PodGroups by namespace and name: the queue position depends on other jobs too."""
    has_all_groups: bool = True
    """Whether `groups` has those of other jobs; without them no position is known."""
    reasons: ReasonLog = field(default_factory=ReasonLog)
    flows: dict[str, str] = field(default_factory=dict)
    """Names of the followed JobFlows by UID."""
    cluster_flags: str = ""
    """The flags with which other commands find the cluster of the run."""

    def phase(self, uid: str) -> str:
        return job_phases.phase_of(self.followed[uid])

    def pending_reasons(self, uid: str) -> list[str]:
        """Return why a job does not run at present: the scheduler's verdict, then its pods'."""
        if self.phase(uid) not in WAITING_PHASES:
            return []
        verdict = list(pending_reasons.of_group(self._judged_group(uid)))
        return [reason.text for reason in (*verdict, *self.reasons.present(uid))]

    def add_flow(self, flow: Object) -> None:
        """Follow a JobFlow: its own events are reasons too."""
        uid = flow["metadata"]["uid"]
        self.flows[uid] = flow["metadata"]["name"]
        self.reasons.add_owner(uid, uid)

    def new_reasons(self) -> Iterator[str]:
        """Yield a line for each reason that is new, and one for its next step."""
        for uid, name in self.flows.items():
            for reason in self.reasons.new(uid, None):
                yield from _with_hint(f"jobflow {name}: {reason.text}", reason.hint)
        for uid, job in self.followed.items():
            if self.phase(uid) in WAITING_PHASES:
                yield from self._new_reasons_of(uid, job["metadata"]["name"])

    def _new_reasons_of(self, uid: str, name: str) -> Iterator[str]:
        is_pending = " is pending" if self.phase(uid) == JobPhase.PENDING else ""
        for reason in self.reasons.new(uid, self._judged_group(uid)):
            hint = reason.hint
            if not hint and HELP not in reason.text:
                hint = f"`{self.command('explain', uid)}` tells more"
            yield from _with_hint(f"job {name}{is_pending}: {reason.text}", hint)

    def command(self, verb: str, uid: str) -> str:
        """Return the command line of a verb on a job, such as `hekla explain train -n ml`."""
        metadata = self.followed[uid]["metadata"]
        words = [f"hekla {verb} {metadata['name']}"]
        if metadata["namespace"] != DEFAULT_NAMESPACE:
            words.append(f"-n {metadata['namespace']}")
        return " ".join([*words, self.cluster_flags] if self.cluster_flags else words)

    def queue_position(self, uid: str) -> tuple[int, int] | None:
        """Return `(2, 5)` for the second of five pending jobs in the queue, oldest first."""
        group = self._group(uid)
        if group is None or not self.has_all_groups or not _is_pending(group):
            return None
        queue = _queue_of(group)
        pending = sorted(
            (_created(one), key)
            for key, one in self.groups.items()
            if _is_pending(one) and _queue_of(one) == queue
        )
        key = (group["metadata"]["namespace"], group["metadata"]["name"])
        return pending.index((_created(group), key)) + 1, len(pending)

    def _judged_group(self, uid: str) -> Object | None:
        """Return the PodGroup unless its job restarts: its gang is then incomplete on purpose."""
        return None if self.phase(uid) == JobPhase.RESTARTING else self._group(uid)

    def _group(self, uid: str) -> Object | None:
        metadata = self.followed[uid]["metadata"]
        return self.groups.get((metadata["namespace"], f"{metadata['name']}-{uid}"))


def _with_hint(line: str, hint: str) -> Iterator[str]:
    yield line
    if hint:
        yield f"  next: {hint}"


def _is_pending(group: Object) -> bool:
    return ((group.get("status") or {}).get("phase") or "") in PENDING_PHASES


def _queue_of(group: Object) -> str:
    return str(group["spec"].get("queue") or DEFAULT_QUEUE)


def _created(group: Object) -> str:
    return str(group["metadata"].get("creationTimestamp") or "")


def panel(jobs: Jobs, now: float) -> Iterator[str]:
    """Yield the lines of the panel."""
    for uid, job in jobs.followed.items():
        yield f"job {job['metadata']['name']}  {_headline(jobs, uid, job, now)}"
        width = max((len(task.get("name", "")) for task in job_commands.tasks_of(job)), default=0)
        for task in job_commands.tasks_of(job):
            yield f"  {task.get('name', ''):<{width}}  {_progress(job, task)}"
        for reason in jobs.pending_reasons(uid)[:PANEL_REASONS]:
            yield f"  pending: {reason}"


def _headline(jobs: Jobs, uid: str, job: Object, now: float) -> str:
    words = [jobs.phase(uid)]
    created = job["metadata"].get("creationTimestamp")
    if created and jobs.phase(uid) not in JobPhase.FINISHED:
        words.append(f"{max(0.0, now - parse_time(created)):.0f}s")
    words.append(f"queue {job['spec'].get('queue') or DEFAULT_QUEUE}")
    if position := jobs.queue_position(uid):
        words.append(f"position {position[0]} of {position[1]}")
    return "  ".join(words)


def _progress(job: Object, task: Object) -> str:
    total, phases = int(task.get("replicas") or 0), _phases(job, task)
    bar, words, counted = "", [], 0
    for phase, word, sign in STEPS:
        count = int(phases.get(phase) or 0)
        if count:
            words.append(f"{count} {word}")
            counted += count
            # Of all counted so far: a bar of several phases is full when all pods are.
            bar += sign * max(1, counted * BAR // max(total, 1) - len(bar))
    if arrays.array_of(job) is not None:
        return f"{bar[:BAR]:·<{BAR}}  {array_progress(job)}"
    return f"{bar[:BAR]:·<{BAR}}  {', '.join(words) or 'no pods yet'} of {total}"


def _phases(job: Object, task: Object) -> dict[str, int]:
    counted = ((job.get("status") or {}).get("taskStatusCount") or {}).get(task.get("name")) or {}
    return counted.get("phase") or {}


def array_progress(job: Object) -> str:
    """Return `37/100 done, 2 failed, 10 running` of an array."""
    task = job_commands.tasks_of(job)[0]
    counts = {phase.lower(): int(count) for phase, count in _phases(job, task).items()}
    return summary(int(task.get("replicas") or 0), counts)


def _milestone(job: Object) -> str:
    """Return a text that changes when an array has done another tenth, or had its first failure."""
    task = job_commands.tasks_of(job)[0]
    phases = _phases(job, task)
    failed = int(phases.get(PodPhase.FAILED) or 0)
    done = int(phases.get(PodPhase.SUCCEEDED) or 0) + failed
    return f"{done * TENTHS // max(1, int(task.get('replicas') or 0))} {failed > 0}"


class Screen(Protocol):
    """The output of a run."""

    def message(self, line: str) -> None: ...
    def output(self, pod: str, line: str) -> None: ...
    def ask(self, question: str) -> None: ...
    def changed(self) -> None: ...
    def ended(self) -> None: ...
    def close(self) -> None: ...


class PlainScreen:
    """Prints one line for each change: for files, pipes and CI."""

    def __init__(self, jobs: Jobs, now: Callable[[], float] = time.monotonic) -> None:
        self._jobs = jobs
        self._now = now
        self._is_ended = False
        self._ended_at: dict[str, float] = {}
        self._printed: dict[str, str] = {}
        self._milestones: dict[str, str] = {}

    def _print(self, line: str, by: Callable[[str], None] = terminal.echo) -> None:
        try:
            by(line)
        except BrokenPipeError:  # `interrupts` ends the run
            discard_unseen_output()

    def message(self, line: str) -> None:
        self._print(line)

    def output(self, pod: str, line: str) -> None:
        self._print(f"{pod} | {line}", by=click.echo)

    def ask(self, question: str) -> None:
        """Print a question; an empty one means that it is answered."""
        if question:
            self._print(question)

    def changed(self) -> None:
        for uid, job in self._jobs.followed.items():
            name, phase = job["metadata"]["name"], self._jobs.phase(uid)
            if phase not in LAST_PHASES or self._may_print_last(uid):
                self._print_once(uid, f"job {name}: {phase}")
            if arrays.array_of(job) is not None:
                self._print_milestone(uid, name, job)
        for line in self._jobs.new_reasons():
            self._print(line)

    def _may_print_last(self, uid: str) -> bool:
        """Return whether the output of an ended job is complete, as far as one can wait for it."""
        ended_at = self._ended_at.setdefault(uid, self._now())
        return self._is_ended or self._now() - ended_at >= LAST_OUTPUT_S

    def ended(self) -> None:
        """Print the last phases: all output has been printed."""
        self._is_ended = True
        self.changed()

    def _print_once(self, key: str, line: str) -> None:
        if self._printed.get(key) != line:
            self._printed[key] = line
            self._print(line)

    def _print_milestone(self, uid: str, name: str, job: Object) -> None:
        """Print the progress of an array a bounded number of times."""
        milestone = _milestone(job)
        if self._milestones.get(uid, NO_MILESTONE) != milestone:
            self._milestones[uid] = milestone
            self._print(f"job {name}: {array_progress(job)}")

    def close(self) -> None:
        """Do nothing: every line is printed at once."""


class LiveScreen:
    """Shows output above and the state of the jobs below it."""

    COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")

    def __init__(self, jobs: Jobs, now: Callable[[], float]) -> None:
        # Imported here, so that a run in a pipe does not import rich.
        from rich.console import Console, Group
        from rich.live import Live
        from rich.text import Text

        self._jobs, self._now, self._text, self._group = jobs, now, Text, Group
        self._question = ""
        self._console = Console()
        self._live = Live(console=self._console, get_renderable=self._draw, auto_refresh=False)
        self._colour_of: dict[str, str] = {}
        self._drawn_at = 0.0
        self._live.start()

    def _draw(self) -> Any:
        lines = [self._text("─" * self._console.width, style="dim")]
        for line in panel(self._jobs, self._now()):
            is_reason = line.startswith("  pending")
            lines.append(
                self._text(
                    terminal.escaped(line),
                    style="yellow" if is_reason else "",
                    no_wrap=not is_reason,
                    overflow="fold" if is_reason else "ellipsis",
                )
            )
        if self._question:
            lines.append(self._text(self._question, style="bold"))
        return self._group(*lines)

    def ask(self, question: str) -> None:
        """Show a question as the last line, below all output, until it is answered."""
        self._question = question
        self._live.refresh()

    def message(self, line: str) -> None:
        self._console.print(self._text(terminal.escaped(line)))

    def output(self, pod: str, line: str) -> None:
        colour = self._colour_of.setdefault(
            pod, self.COLOURS[len(self._colour_of) % len(self.COLOURS)]
        )
        text = self._text.assemble((f"{pod} │ ", colour))
        # Programs colour their output; as plain text the escape codes would be visible.
        text.append_text(self._text.from_ansi(line))
        self._console.print(text, soft_wrap=True)

    def changed(self) -> None:
        """Print new reasons, and redraw at most every REDRAW_S."""
        for line in self._jobs.new_reasons():
            self.message(line)
        now = self._now()
        if abs(now - self._drawn_at) >= REDRAW_S:
            self._drawn_at = now
            self._live.refresh()

    def ended(self) -> None:
        """Do nothing: the state is always the last line."""

    def close(self) -> None:
        self._live.refresh()
        self._live.stop()

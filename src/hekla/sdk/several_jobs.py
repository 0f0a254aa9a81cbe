"""Wait for several jobs: `as_completed` and `gather`, named as in concurrent.futures and asyncio.

One thread watches the jobs of one namespace. Coroutines use asyncio's own functions, such as
`asyncio.gather(*(job.wait() for job in jobs))`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import TypeVar

from hekla.api.wellknown import JobPhase
from hekla.kube.errors import KubeError, NotFound
from hekla.kube.kubeconfig import ClusterConfig
from hekla.kube.resources import JOBS
from hekla.kube.responses import Listing
from hekla.sdk import job_phases, timeouts
from hekla.sdk.handle import JobHandle
from hekla.sdk.job_wait import JobEnded
from hekla.sdk.watching import changes, objects
from hekla.units.objects import Object

T = TypeVar("T")
CHECK_S = 3.0
"""How often a progress bar looks for reasons."""
WAITING = (JobPhase.PENDING, JobPhase.RESTARTING)


def handles(jobs: Iterable[T]) -> list[T]:
    """Return the handles of jobs; TypeError says what to pass instead of another object."""
    given = list(jobs)
    for one in given:
        if not hasattr(one, "object"):
            raise TypeError(
                f"{one!r:.100} is a {type(one).__name__}: pass what submit() returned, or "
                "JobHandle.of(NAME)"
            )
    return given


def as_completed(
    jobs: Iterable[JobHandle], *, timeout_s: float | None = None, progress: bool = False
) -> Iterator[JobHandle]:
    """Yield each job when it has finished, in any phase, the first one first.

    `progress` shows a progress bar in a terminal or a notebook, and why jobs do not run. Raise
    TimeoutError with the reasons after `timeout_s`, NotFound if a job is deleted.

    Example:
        for job in as_completed([JobHandle.of("a"), JobHandle.of("b")]):
            print(job.name, job.phase)
    """
    given = handles(jobs)
    if not progress:
        return _finished(given, timeout_s)
    return _with_progress(given, timeout_s)


def _finished(
    given: Sequence[JobHandle],
    timeout_s: float | None,
    on_waiting: Callable[[list[JobHandle]], None] | None = None,
) -> Iterator[JobHandle]:
    """Yield the jobs; `on_waiting` gets the missing ones every `CHECK_S`."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    missing = {str(job.object["metadata"]["uid"]): job for job in given}
    finished: SimpleQueue[Object | KubeError] = SimpleQueue()
    stopped = threading.Event()
    try:
        for watcher in _watchers(given, finished, stopped):
            threading.Thread(target=watcher.run, daemon=True).start()
        while missing:
            found = _next(finished, deadline, CHECK_S if on_waiting else None)
            if found is None and deadline is not None and time.monotonic() >= deadline:
                raise _timed_out(timeout_s, list(missing.values()))
            if found is None:
                if on_waiting is not None:
                    on_waiting(list(missing.values()))
                continue
            if isinstance(found, KubeError):
                raise found
            job = missing.pop(found["metadata"]["uid"])
            job.object = found
            yield job
    finally:
        stopped.set()


def gather(
    jobs: Iterable[JobHandle], *, timeout_s: float | None = None, progress: bool = False
) -> list[JobHandle]:
    """Wait until all jobs have completed and return them in the given order.

    `progress` shows a progress bar in a terminal or a notebook, and why jobs do not run. Raise
    JobEnded as soon as one finished in another phase; the others keep running. Raise TimeoutError
    with the reasons after `timeout_s`.

    Example:
        first, second = gather([JobHandle.of("a"), JobHandle.of("b")], timeout_s=600)
    """
    given = handles(jobs)
    for job in as_completed(given, timeout_s=timeout_s, progress=progress):
        if job.phase != JobPhase.COMPLETED:
            raise JobEnded(job.object)
    return given


def _timed_out(timeout_s: float | None, missing: Sequence[JobHandle]) -> TimeoutError:
    names = ", ".join(job.name for job in missing)
    return timeouts.timed_out(f"not finished within {timeout_s or 0:g} s: {names}", _why(missing))


def _why(jobs: Sequence[JobHandle]) -> list[str]:
    """Return why the first of some jobs have not finished."""
    lines: list[str] = []
    for job in jobs[: timeouts.MAX_EXPLAINED]:
        lines += timeouts.reasons(job.config, job.namespace, job.name)
    return lines


def _with_progress(given: Sequence[JobHandle], timeout_s: float | None) -> Iterator[JobHandle]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    failed = 0
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, TimeElapsedColumn()) as bar:
        task = bar.add_task("jobs", total=len(given))
        seen: set[str] = set()

        def show_reasons(missing: list[JobHandle]) -> None:
            pending = [job for job in missing[: timeouts.MAX_EXPLAINED] if job.phase in WAITING]
            for job in pending:
                text = "\n".join(timeouts.reasons(job.config, job.namespace, job.name))
                if text not in seen:
                    seen.add(text)
                    bar.console.print(text, markup=False, highlight=False)

        for job in _finished(given, timeout_s, show_reasons):
            failed += job.phase != JobPhase.COMPLETED
            description = f"jobs ({failed} not completed)" if failed else "jobs"
            bar.update(task, advance=1, description=description)
            yield job


def _next(
    finished: SimpleQueue[Object | KubeError], deadline: float | None, at_most_s: float | None
) -> Object | KubeError | None:
    left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
    waits = [each for each in (left_s, at_most_s) if each is not None]
    try:
        return finished.get(timeout=min(waits, default=None))
    except Empty:
        return None


def _watchers(
    jobs: Sequence[JobHandle],
    finished: SimpleQueue[Object | KubeError],
    stopped: threading.Event,
) -> list[_Watcher]:
    """Return a watcher for each cluster and namespace."""
    watchers: dict[tuple[str, ...], _Watcher] = {}
    for job in jobs:
        where = job.config
        key = where.server, where.source, where.context, job.namespace
        watcher = watchers.setdefault(key, _Watcher(where, job.namespace, finished, stopped))
        watcher.missing[job.name] = str(job.object["metadata"]["uid"])
    return list(watchers.values())


class _Watcher:
    """Puts each of its jobs into a queue once, when it has finished."""

    def __init__(
        self,
        config: ClusterConfig,
        namespace: str,
        finished: SimpleQueue[Object | KubeError],
        stopped: threading.Event,
    ) -> None:
        self.missing: dict[str, str] = {}
        """UIDs by name."""
        self._config = config
        self._namespace = namespace
        self._finished = finished
        self._stopped = stopped

    def run(self) -> None:
        try:
            for change in changes(
                self._config, JOBS, namespace=self._namespace, stopped=self._stopped
            ):
                if isinstance(change, Listing):
                    self._raise_if_deleted(change)
                elif change.type == "DELETED":
                    self._raise_if_missing(change.object)
                for job in objects(change):
                    self._see(job)
                if not self.missing:
                    return
        except KubeError as error:
            self._finished.put(error)

    def _raise_if_deleted(self, listed: Listing[Object]) -> None:
        uids = {job["metadata"]["uid"] for job in listed}
        for name, uid in self.missing.items():
            if uid not in uids:
                raise _deleted(name)

    def _raise_if_missing(self, job: Object) -> None:
        name = job["metadata"]["name"]
        if self.missing.get(name) == job["metadata"]["uid"]:
            raise _deleted(name)

    def _see(self, job: Object) -> None:
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        if self.missing.get(name) == uid and job_phases.is_finished(job):
            del self.missing[name]
            self._finished.put(job)


def _deleted(name: str) -> NotFound:
    return NotFound(404, "NotFound", f'jobs.batch.volcano.sh "{name}" was deleted')

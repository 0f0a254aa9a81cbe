"""Wait for several jobs: `as_completed` and `gather`, named as in concurrent.futures and asyncio.

One thread watches the jobs of one namespace. Coroutines use asyncio's own functions, such as
`asyncio.gather(*(job.wait() for job in jobs))`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from queue import Empty, SimpleQueue

from hekla.api.wellknown import JobPhase
from hekla.kube.errors import KubeError, NotFound
from hekla.kube.kubeconfig import ClusterConfig
from hekla.kube.resources import JOBS
from hekla.kube.responses import Listing
from hekla.sdk import job_phases
from hekla.sdk.handle import JobHandle
from hekla.sdk.job_wait import JobEnded
from hekla.sdk.watching import changes, objects
from hekla.units.objects import Object


def as_completed(
    jobs: Iterable[JobHandle], *, timeout_s: float | None = None, progress: bool = False
) -> Iterator[JobHandle]:
    """Yield each job when it has finished, in any phase, the first one first.

    `progress` shows a progress bar in a terminal or a notebook. Raise TimeoutError after
    `timeout_s`, NotFound if a job is deleted.

    Example:
        for job in as_completed([JobHandle.of("a"), JobHandle.of("b")]):
            print(job.name, job.phase)
    """
    given = list(jobs)
    finished = _finished(given, timeout_s)
    return _with_progress(finished, len(given)) if progress else finished


def _finished(given: Sequence[JobHandle], timeout_s: float | None) -> Iterator[JobHandle]:
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    missing = {str(job.object["metadata"]["uid"]): job for job in given}
    finished: SimpleQueue[Object | KubeError] = SimpleQueue()
    stopped = threading.Event()
    try:
        for watcher in _watchers(given, finished, stopped):
            threading.Thread(target=watcher.run, daemon=True).start()
        while missing:
            found = _next(finished, deadline)
            if found is None:
                names = ", ".join(job.name for job in missing.values())
                raise TimeoutError(f"not finished within {timeout_s:g} s: {names}")
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

    `progress` shows a progress bar in a terminal or a notebook. Raise JobEnded as soon as one
    finished in another phase; the others keep running.

    Example:
        first, second = gather([JobHandle.of("a"), JobHandle.of("b")], timeout_s=600)
    """
    given = list(jobs)
    for job in as_completed(given, timeout_s=timeout_s, progress=progress):
        if job.phase != JobPhase.COMPLETED:
            raise JobEnded(job.object)
    return given


def _with_progress(jobs: Iterator[JobHandle], total: int) -> Iterator[JobHandle]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    failed = 0
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, TimeElapsedColumn()) as bar:
        task = bar.add_task("jobs", total=total)
        for job in jobs:
            failed += job.phase != JobPhase.COMPLETED
            description = f"jobs ({failed} not completed)" if failed else "jobs"
            bar.update(task, advance=1, description=description)
            yield job


def _next(
    finished: SimpleQueue[Object | KubeError], deadline: float | None
) -> Object | KubeError | None:
    left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
    try:
        return finished.get(timeout=left_s)
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

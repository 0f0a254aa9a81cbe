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
from hekla.kube.errors import Gone, KubeError, NotFound, TransportError
from hekla.kube.kubeconfig import ClusterConfig
from hekla.kube.resources import JOBS
from hekla.kube.sync_client import SyncClient
from hekla.sdk import job_phases
from hekla.sdk.handle import JobHandle
from hekla.sdk.job_wait import RETRY_S, JobEnded
from hekla.units.objects import Object

# How long a watching thread may stay in a read after its reader has stopped.
WATCH_S = 10.0


def as_completed(
    jobs: Iterable[JobHandle], *, timeout_s: float | None = None
) -> Iterator[JobHandle]:
    """Yield each job when it has finished, in any phase, the first one first.

    Raise TimeoutError after `timeout_s`, NotFound if a job is deleted.

    Example:
        for job in as_completed([JobHandle.of("a"), JobHandle.of("b")]):
            print(job.name, job.phase)
    """
    given = list(jobs)
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


def gather(jobs: Iterable[JobHandle], *, timeout_s: float | None = None) -> list[JobHandle]:
    """Wait until all jobs have completed and return them in the given order.

    Raise JobEnded as soon as one finished in another phase; the others keep running.

    Example:
        first, second = gather([JobHandle.of("a"), JobHandle.of("b")], timeout_s=600)
    """
    given = list(jobs)
    for job in as_completed(given, timeout_s=timeout_s):
        if job.phase != JobPhase.COMPLETED:
            raise JobEnded(job.object)
    return given


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
            with SyncClient(self._config, component="sdk") as client:
                while self.missing and not self._stopped.is_set():
                    self._list_and_watch(client)
        except KubeError as error:
            self._finished.put(error)

    def _list_and_watch(self, client: SyncClient) -> None:
        listed = client.list(JOBS, namespace=self._namespace)
        found = {job["metadata"]["name"]: job for job in listed}
        for name, uid in list(self.missing.items()):
            if name not in found or found[name]["metadata"]["uid"] != uid:
                raise NotFound(404, "NotFound", f'jobs.batch.volcano.sh "{name}" was deleted')
            self._see(found[name])
        try:
            self._watch(client, listed.resource_version)
        except Gone:
            return
        except TransportError:
            # The server may be restarting: list again; a lasting failure raises there.
            self._stopped.wait(RETRY_S)

    def _watch(self, client: SyncClient, version: str) -> None:
        if not self.missing:
            return
        with client.watch(
            JOBS, namespace=self._namespace, resource_version=version, timeout_s=WATCH_S
        ) as events:
            for event in events:
                if event.type == "DELETED":
                    return  # the next list shows whether it is one of ours
                self._see(event.object)
                if not self.missing or self._stopped.is_set():
                    return

    def _see(self, job: Object) -> None:
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        if self.missing.get(name) == uid and job_phases.is_finished(job):
            del self.missing[name]
            self._finished.put(job)

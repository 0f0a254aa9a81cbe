"""The output of all pods of a job as one stream of lines.

Following uses one thread and one client for each run of a container, because a synchronous client
reads one stream at a time. Lines of one container keep their order; lines of several containers
interleave.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from queue import SimpleQueue

from hekla.kube.errors import BadRequest, KubeError, NotFound, TransportError
from hekla.kube.resources import JOBS, PODS
from hekla.kube.responses import LineSplitter, Listing
from hekla.kube.sync_client import SyncClient
from hekla.sdk import job_commands, job_phases
from hekla.sdk.container_runs import Run, Runs, has_several, is_started
from hekla.sdk.outages import Outage
from hekla.sdk.watching import Change, changes, objects
from hekla.units.objects import Object


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of output of a container; `str()` prefixes `source`.

    Example:
        LogLine(pod="hello-worker-0", container="worker", text="hi")
    """

    pod: str
    container: str
    text: str
    is_of_several: bool = False
    """Whether the pod has other containers."""
    attempt: int = 0
    """The attempt, counted from 1, if one was asked for."""

    @property
    def source(self) -> str:
        """Where it comes from: the pod, or `pod/container`, and the attempt."""
        name = f"{self.pod}/{self.container}" if self.is_of_several else self.pod
        return f"{name} (attempt {self.attempt})" if self.attempt else name

    def __str__(self) -> str:
        return f"{self.source} | {self.text}"


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Log parameters of each container, named as in the API."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    since_s: int | None = None
    limit_bytes: int | None = None


def job_logs(
    client: SyncClient,
    job: str,
    *,
    namespace: str,
    follow: bool = False,
    task: str = "",
    container: str = "",
    options: LogOptions | None = None,
) -> Iterator[LogLine]:
    """Yield the lines of a job's pods, or of one task; with `follow` until the job has finished."""
    options = options or LogOptions(follow=follow)
    if options.follow:
        return _Follower(client, job, namespace, task, container, options).lines()
    return _read_all(client, job, namespace, task, container, options)


def _read_all(
    client: SyncClient, job: str, namespace: str, task: str, container: str, options: LogOptions
) -> Iterator[LogLine]:
    for pod in pods_of(client, job, namespace, task):
        if is_started(pod):
            yield from pod_lines(client, pod, container, options)


def pods_of(client: SyncClient, job: str, namespace: str, task: str = "") -> list[Object]:
    """Return the pods of a job, sorted by name."""
    selector = job_commands.pods_selector(job, task)
    listed = client.list(PODS, namespace=namespace, label_selector=selector)
    return sorted(listed, key=_natural)


def _natural(pod: Object) -> tuple[str, int]:
    name, _, index = str(pod["metadata"]["name"]).rpartition("-")
    return (name, int(index)) if index.isdigit() else (pod["metadata"]["name"], -1)


def pod_lines(
    client: SyncClient, pod: Object, container: str, options: LogOptions
) -> Iterator[LogLine]:
    """Yield the lines of one pod, one container after the other; of init containers by name."""
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    named = [one for one in spec.get("initContainers") or () if one["name"] == container]
    for one in [*named, *(spec.get("containers") or ())]:
        if container and one["name"] != container:
            continue
        where = metadata["namespace"], metadata["name"], metadata["uid"], one["name"]
        run = Run(*where, is_of_several=bool(named) or has_several(pod))
        yield from run_lines(client, run, options)


def run_lines(client: SyncClient, run: Run, options: LogOptions) -> Iterator[LogLine]:
    """Yield the lines of one run of a container; nothing if it cannot be read."""
    try:
        yield from lines_of_run(client, run, options)
    except (BadRequest, NotFound):
        # Not started yet, or deleted since the list: it has no output.
        return


def lines_of_run(client: SyncClient, run: Run, options: LogOptions) -> Iterator[LogLine]:
    """Yield the lines of one run of a container; raise BadRequest or NotFound if it has none."""
    splitter = LineSplitter(f"log of {run.pod}")
    with client.logs(
        run.pod,
        namespace=run.namespace,
        container=run.container,
        follow=options.follow,
        previous=options.previous,
        timestamps=options.timestamps,
        tail_lines=options.tail_lines,
        since_s=options.since_s,
        limit_bytes=options.limit_bytes,
        run=run.number,
        uid=run.uid,
        owner=run.owner,
    ) as chunks:
        for chunk in chunks:
            for line in splitter.feed(chunk):
                yield line_of(run, line)
    if rest := splitter.rest():
        yield line_of(run, rest)


def line_of(run: Run, line: bytes) -> LogLine:
    text = line.decode(errors="replace").rstrip("\r")
    return LogLine(run.pod, run.container, text, run.is_of_several, run.attempt)


def failure_line(run: Run, error: KubeError) -> LogLine:
    """Return the line that stands for output that cannot be read."""
    text = f"(the log cannot be read: {error})"
    return LogLine(run.pod, run.container, text, run.is_of_several, run.attempt)


@dataclass(frozen=True, slots=True)
class _RunComplete:
    """The output of a run is complete."""

    run: Run


@dataclass(frozen=True, slots=True)
class _JobDeleted:
    """The job was deleted: it starts no more pods."""


class _Follower:
    """Threads that watch a job and its pods and read their output into one queue."""

    def __init__(
        self,
        client: SyncClient,
        job: str,
        namespace: str,
        task: str,
        container: str,
        options: LogOptions,
    ) -> None:
        self._client = client
        self._job = job
        self._namespace = namespace
        self._task = task
        self._container = container
        self._options = options
        self._stopped = threading.Event()
        self._events: SimpleQueue[LogLine | Object | _RunComplete | _JobDeleted | KubeError] = (
            SimpleQueue()
        )
        self._runs = Runs()
        self._reading: set[Run] = set()
        self._readers: dict[tuple[str, str], threading.Thread] = {}

    def lines(self) -> Iterator[LogLine]:
        try:
            for kind in ("jobs", "pods"):
                threading.Thread(target=self._watch, args=(kind,), daemon=True).start()
            finished = False
            while not (finished and not self._reading):
                match self._events.get():
                    case LogLine() as line:
                        yield line
                    case _RunComplete(run=run):
                        self._reading.discard(run)
                    case KubeError() as error:
                        raise error
                    case _JobDeleted():
                        finished = True
                        self._read_all_new_runs()
                    case {"kind": "Pod"} as pod:
                        self._read_new_runs(pod)
                    case job if not finished:
                        finished = job_phases.is_finished(job)
                        if finished:
                            self._read_all_new_runs()
        finally:
            self._stopped.set()

    def _read_all_new_runs(self) -> None:
        # A short-lived pod may have started and finished between two events.
        for pod in pods_of(self._client, self._job, self._namespace, self._task):
            self._read_new_runs(pod)

    def _read_new_runs(self, pod: Object) -> None:
        for run in self._runs.new_runs(pod, self._container):
            self._reading.add(run)
            earlier = self._readers.get(run.key)
            reader = threading.Thread(target=self._read, args=(run, earlier), daemon=True)
            self._readers[run.key] = reader
            reader.start()

    def _read(self, run: Run, earlier: threading.Thread | None) -> None:
        options = self._options
        if run.is_restart:  # all of its output is new
            options = replace(options, tail_lines=None, since_s=None)
        if run.is_previous:
            options = replace(options, previous=True, follow=False)
        try:
            if earlier is not None:
                earlier.join()
            with SyncClient(self._client.config, component="logs") as client:
                for line in self._all_lines(client, run, options):
                    if self._stopped.is_set():
                        return
                    self._events.put(line)
        except KubeError as error:
            self._events.put(failure_line(run, error))
        finally:
            self._events.put(_RunComplete(run))

    def _all_lines(self, client: SyncClient, run: Run, options: LogOptions) -> Iterator[LogLine]:
        """Yield each line of a run once, also if the server restarts meanwhile."""
        count = 0
        outage = Outage()
        while True:
            number = 0
            try:
                for line in run_lines(client, run, options):
                    outage.reached()
                    number += 1
                    if number > count:
                        count = number
                        yield line
                return
            except TransportError as error:
                if options.tail_lines is not None or options.since_s is not None:
                    raise  # the same lines cannot be counted again
                self._stopped.wait(outage.pause_s(error))

    def _watch(self, kind: str) -> None:
        """Put every state of the job, or of its pods, into the queue until stopped."""
        resource = JOBS if kind == "jobs" else PODS
        labels, fields = "", f"metadata.name={self._job}"
        if kind == "pods":
            labels, fields = job_commands.pods_selector(self._job, self._task), ""
        is_known = False
        try:
            for change in changes(
                self._client.config,
                resource,
                namespace=self._namespace,
                labels=labels,
                fields=fields,
                stopped=self._stopped,
            ):
                if kind == "jobs" and _is_gone(change):
                    if not is_known:
                        message = f'jobs.batch.volcano.sh "{self._job}" not found'
                        raise NotFound(404, "NotFound", message)
                    self._events.put(_JobDeleted())
                    return
                is_known = True
                for obj in objects(change):
                    self._events.put(obj)
        except KubeError as error:
            self._events.put(error)


def _is_gone(change: Change) -> bool:
    if isinstance(change, Listing):
        return not change.items
    return change.type == "DELETED"

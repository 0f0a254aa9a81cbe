"""The output of all pods of a job, line by line, as one stream.

Following takes a thread for every run of a container, because a synchronous client reads one
stream at a time; each has a client of its own. Lines of one container keep their order; containers
interleave as they speak.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from queue import SimpleQueue

from hekla.api import wellknown
from hekla.kube.answers import LineSplitter
from hekla.kube.errors import BadRequest, KubeError, NotFound
from hekla.kube.resources import JOBS, PODS
from hekla.kube.sync_client import SyncClient
from hekla.sdk import job_commands, job_phases
from hekla.sdk.container_runs import Run, Runs, is_started
from hekla.units.objects import Object

# How long a watcher may stay in a read after nobody needs it any more.
WATCH_S = 10.0


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of one container; `str()` puts the pod's name before it."""

    pod: str
    container: str
    text: str

    def __str__(self) -> str:
        return f"{self.pod} | {self.text}"


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What to read of each container, as the API's own parameters."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    since_s: int | None = None


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
    """Lines of every pod of a job, or of one task; with `follow` until the job has finished."""
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
    """The pods of a job, in the order of their names."""
    selector = job_commands.pods_selector(job)
    if task:
        selector += f",{wellknown.TASK_SPEC}={task}"
    found = client.list(PODS, namespace=namespace, label_selector=selector)
    return sorted(found, key=_natural)


def _natural(pod: Object) -> tuple[str, int]:
    name, _, index = str(pod["metadata"]["name"]).rpartition("-")
    return (name, int(index)) if index.isdigit() else (pod["metadata"]["name"], -1)


def pod_lines(
    client: SyncClient, pod: Object, container: str, options: LogOptions
) -> Iterator[LogLine]:
    """The lines of one pod's containers, one container after the other."""
    metadata = pod["metadata"]
    for one in (pod.get("spec") or {}).get("containers") or ():
        if container and one["name"] != container:
            continue
        run = Run(metadata["namespace"], metadata["name"], metadata["uid"], one["name"])
        yield from run_lines(client, run, options)


def run_lines(client: SyncClient, run: Run, options: LogOptions) -> Iterator[LogLine]:
    """The lines of one run of a container; none if it is not there to be read."""
    splitter = LineSplitter(f"log of {run.pod}")
    try:
        with client.logs(
            run.pod,
            namespace=run.namespace,
            container=run.container,
            follow=options.follow,
            previous=options.previous,
            timestamps=options.timestamps,
            tail_lines=options.tail_lines,
            since_s=options.since_s,
            run=run.number,
        ) as chunks:
            for chunk in chunks:
                for line in splitter.feed(chunk):
                    yield line_of(run, line)
    except (BadRequest, NotFound):
        # Not started yet, or gone between the list and now: it has nothing to say.
        return
    if rest := splitter.rest():
        yield line_of(run, rest)


def line_of(run: Run, line: bytes) -> LogLine:
    return LogLine(run.pod, run.container, line.decode(errors="replace").rstrip("\r"))


def unreadable(run: Run, error: KubeError) -> LogLine:
    """What stands where a container's words should."""
    return LogLine(run.pod, run.container, f"(the log cannot be read: {error})")


@dataclass(frozen=True, slots=True)
class _Ended:
    """A run of a container has said its last word."""

    run: Run


class _Follower:
    """Threads that watch the job and its pods and read their output, into one queue."""

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
        self._found: SimpleQueue[LogLine | Object | _Ended | KubeError] = SimpleQueue()
        self._runs = Runs()
        self._reading: set[Run] = set()
        self._readers: dict[tuple[str, str], threading.Thread] = {}

    def lines(self) -> Iterator[LogLine]:
        try:
            for kind in ("jobs", "pods"):
                threading.Thread(target=self._watch, args=(kind,), daemon=True).start()
            finished = False
            while not (finished and not self._reading):
                match self._found.get():
                    case LogLine() as line:
                        yield line
                    case _Ended(run=run):
                        self._reading.discard(run)
                    case KubeError() as error:
                        raise error
                    case {"kind": "Pod"} as pod:
                        self._take_up(pod)
                    case job if not finished:
                        finished = job_phases.is_finished(job)
                        if finished:
                            # A quick pod may have come and gone between two events.
                            for pod in pods_of(
                                self._client, self._job, self._namespace, self._task
                            ):
                                self._take_up(pod)
        finally:
            self._stopped.set()

    def _take_up(self, pod: Object) -> None:
        for run in self._runs.news(pod, self._container):
            self._reading.add(run)
            earlier = self._readers.get(run.place)
            reader = threading.Thread(target=self._read, args=(run, earlier), daemon=True)
            self._readers[run.place] = reader
            reader.start()

    def _read(self, run: Run, earlier: threading.Thread | None) -> None:
        options = self._options
        if run.is_restart:  # news all of it
            options = replace(options, tail_lines=None, since_s=None)
        if run.is_previous:
            options = replace(options, previous=True, follow=False)
        try:
            if earlier is not None:
                earlier.join()
            with SyncClient(self._client.config, component="logs") as client:
                for line in run_lines(client, run, options):
                    if self._stopped.is_set():
                        return
                    self._found.put(line)
        except KubeError as error:
            self._found.put(unreadable(run, error))
        finally:
            self._found.put(_Ended(run))

    def _watch(self, kind: str) -> None:
        """Put every state of the job, or of its pods, into the queue until told to stop."""
        resource = JOBS if kind == "jobs" else PODS
        labels, fields = "", f"metadata.name={self._job}"
        if kind == "pods":
            labels, fields = job_commands.pods_selector(self._job), ""
            if self._task:
                labels += f",{wellknown.TASK_SPEC}={self._task}"
        try:
            with SyncClient(self._client.config, component="logs") as client:
                while not self._stopped.is_set():
                    listed = client.list(
                        resource,
                        namespace=self._namespace,
                        label_selector=labels,
                        field_selector=fields,
                    )
                    if kind == "jobs" and not listed.items:
                        message = f'jobs.batch.volcano.sh "{self._job}" not found'
                        raise NotFound(404, "NotFound", message)
                    for found in listed:
                        self._found.put(found)
                    with client.watch(
                        resource,
                        namespace=self._namespace,
                        label_selector=labels,
                        field_selector=fields,
                        resource_version=listed.resource_version,
                        timeout_s=WATCH_S,
                    ) as events:
                        for event in events:
                            self._found.put(event.object)
                            if self._stopped.is_set():
                                return
        except KubeError as error:
            self._found.put(error)

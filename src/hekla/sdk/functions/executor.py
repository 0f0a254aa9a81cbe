"""`Executor`: the interface of concurrent.futures, with pods instead of threads.

    with Executor(Task(cpu=1)) as executor:
        future = executor.submit(pow, 2, 10)
        print(future.result(), list(executor.map(abs, [-1, -2])))

`submit` creates one job; `map` creates one job with a pod for each call. Two threads watch the jobs
and pods of an executor, and a few read results, however many calls there are.
"""

from __future__ import annotations

import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass, field, replace
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from hekla.api import wellknown
from hekla.api.arrays import index_of_pod
from hekla.api.wellknown import PodPhase
from hekla.kube.errors import KubeError, NotFound
from hekla.kube.resources import JOBS, PODS, Resource
from hekla.kube.responses import WatchEvent
from hekla.kube.sync_client import SyncClient
from hekla.sdk import job_phases, timeouts, validation
from hekla.sdk.builders import Job, Task
from hekla.sdk.explanation import explanation
from hekla.sdk.functions.calls import Calls, call_job, job_name, name_of
from hekla.sdk.functions.function_job import ended_without_result, result_of, token_of
from hekla.sdk.functions.results import outcome_in
from hekla.sdk.handle import JobHandle, default_client
from hekla.sdk.logs import LogOptions, pod_lines, pods_of
from hekla.sdk.manifests import raise_if_invalid
from hekla.sdk.submission import create_call
from hekla.sdk.watching import changes, objects
from hekla.units.objects import Object

T = TypeVar("T")
P = ParamSpec("P")

EXECUTOR = "hekla.io/executor"
"""Label of the jobs and pods of an executor."""
READERS = 4
SAY_AFTER_S = 5.0
"""An executor that waits so long at its end says why."""
TTL_S = 3600
_ENDED = (PodPhase.SUCCEEDED, PodPhase.FAILED)


class JobFuture(futures.Future[T]):
    """A call that runs in a pod; `job` is the handle of its job.

    Example:
        future: JobFuture[int] = Executor().submit(pow, 2, 10)
        print(future.job.name, future.result())
    """

    job: JobHandle

    def __init__(self, on_cancel: Callable[[], None]) -> None:
        super().__init__()
        self._on_cancel = on_cancel

    def result(self, timeout: float | None = None) -> T:
        """Return what the call returned, or raise what it raised.

        Raise TimeoutError with the reasons after `timeout` seconds.
        """
        try:
            return super().result(timeout)
        except TimeoutError:
            if self.done():  # the call itself raised it
                raise
            raise self._timed_out(timeout) from None

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what the call raised; raise TimeoutError with the reasons after `timeout`."""
        try:
            return super().exception(timeout)
        except TimeoutError:
            raise self._timed_out(timeout) from None

    def _timed_out(self, timeout: float | None) -> TimeoutError:
        job = self.job
        what = f"the call of job {job.name} has not ended after {timeout or 0:g} s"
        return timeouts.timed_out(what, timeouts.reasons(job.config, job.namespace, job.name))

    def cancel(self) -> bool:
        """Cancel the call if its pod has not started; delete its job if no other call needs it."""
        was_cancelled, is_cancelled = self.cancelled(), super().cancel()
        if is_cancelled and not was_cancelled:
            self.set_running_or_notify_cancel()  # ends the waits for it that have begun
            self._on_cancel()
        return is_cancelled


@dataclass
class _CallJob:
    """A job of an executor, with the futures of its calls by index."""

    pending: dict[int, JobFuture[Any]]
    object: Object = field(default_factory=dict)
    reading: set[int] = field(default_factory=set)


class Executor(futures.Executor):
    """Runs calls in pods, each with the resources of `task`.

    Of one `map` at most `max_workers` pods exist at a time. A call that fails is tried `retries`
    times again. Jobs are deleted `ttl_s` seconds after they finished. Functions and their arguments
    are pickled by cloudpickle and may take 1 MB together.

    Example:
        with Executor(Task(cpu=1, memory="1Gi"), queue="ml") as executor:
            print(sum(executor.map(abs, range(-3, 0))))
    """

    def __init__(
        self,
        task: Task | None = None,
        *,
        queue: str = "",
        max_workers: int | None = None,
        retries: int = 0,
        namespace: str | None = None,
        ttl_s: int | None = TTL_S,
        client: SyncClient | None = None,
    ) -> None:
        self._client = client or default_client()
        self._namespace = namespace or self._client.namespace
        self._label = {EXECUTOR: secrets.token_hex(6)}
        task = task or Task()
        self._task = replace(task, labels={**task.labels, **self._label})
        if max_workers is not None and max_workers < 1:
            raise ValueError(f"max_workers is {max_workers}: at least one pod runs at a time")
        if retries < 0:
            raise ValueError(f"retries is {retries}: it is a number of further attempts")
        self._job = Job("", queue=queue, ttl_s=ttl_s, labels=self._label, retries=retries)
        self._max_workers = max_workers
        self._lock = threading.RLock()
        self._jobs: dict[str, _CallJob] = {}
        """By name; only those with calls that have not ended."""
        self._is_shut_down = False
        self._stopped = threading.Event()
        self._reads: SimpleQueue[Callable[[SyncClient], None] | None] = SimpleQueue()
        self._readers: list[threading.Thread] = []

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> JobFuture[T]:
        """Run `fn(*args, **kwargs)` in a pod and return its future."""
        (future,) = self._start(Calls(fn, [(args, kwargs)]))
        return future

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[T]:
        """Yield the results of `fn` for the items, in order; one pod runs `chunksize` calls."""
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1")
        items = list(zip(*iterables, strict=False))
        if not items:
            return iter(())
        chunks = [items[at : at + chunksize] for at in range(0, len(items), chunksize)]
        deadline = None if timeout is None else time.monotonic() + timeout
        started = self._start(Calls(_of_chunk(fn), [((chunk,), {}) for chunk in chunks]))
        return _results(started, deadline)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls; wait for those that run."""
        with self._lock:
            self._is_shut_down = True
            pending = [each for job in self._jobs.values() for each in job.pending.values()]
        if cancel_futures:
            for future in pending:
                future.cancel()
        if wait:
            _, left = futures.wait(pending, timeout=SAY_AFTER_S)
            _say_why(left)
            futures.wait(left)
        self._stop_if_idle()
        if wait:
            # The watches end by themselves: a read of theirs may last for seconds.
            for thread in self._readers:
                thread.join()

    def _start(self, calls: Calls) -> list[JobFuture[Any]]:
        """Create the job of calls and return their futures."""
        job = replace(self._job, name=job_name(calls.function))
        manifest, secret = call_job(
            calls,
            self._task,
            job,
            is_local=self._client.config.is_loopback,
            parallelism=self._max_workers,
        )
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("cannot schedule new futures after shutdown")
            if not self._readers:
                # The jobs of an executor differ in their calls only.
                raise_if_invalid(manifest, validation.ClusterView(self._client))
                self._start_threads()
            started = {
                index: JobFuture[Any](partial(self._cancelled, job.name, index))
                for index in range(len(calls.arguments))
            }
            self._jobs[job.name] = known = _CallJob(dict(started))
            try:
                known.object = create_call(self._client, manifest, secret, self._namespace)
            except BaseException:
                del self._jobs[job.name]
                raise
            handle = JobHandle(self._client, known.object)
            for future in started.values():
                future.job = handle
        return list(started.values())

    def _start_threads(self) -> None:
        watches: list[Callable[[], None]] = [
            partial(self._watch, JOBS, self._see_job),
            partial(self._watch, PODS, self._see_pod),
        ]
        self._readers = [_started(self._read_all) for _ in range(READERS)]
        for watch in watches:
            _started(watch)

    def _watch(self, resource: Resource[Object], see: Callable[[Object, bool], None]) -> None:
        labels = ",".join(f"{key}={value}" for key, value in self._label.items())
        try:
            for change in changes(
                self._client.config,
                resource,
                namespace=self._namespace,
                labels=labels,
                stopped=self._stopped,
            ):
                is_deleted = isinstance(change, WatchEvent) and change.type == "DELETED"
                for obj in objects(change):
                    see(obj, is_deleted)
        except KubeError as error:
            self._fail_all(error)

    def _see_job(self, job: Object, is_deleted: bool) -> None:
        name = job["metadata"]["name"]
        if is_deleted:
            error = NotFound(404, "NotFound", f'jobs.batch.volcano.sh "{name}" was deleted')
            self._end(name, lambda _: error)
        elif job_phases.is_finished(job):
            self._reads.put(lambda client: self._finish(client, job))

    def _see_pod(self, pod: Object, is_deleted: bool) -> None:
        name, index = _call_of(pod)
        phase = (pod.get("status") or {}).get("phase")
        with self._lock:
            known = self._jobs.get(name)
            future = known.pending.get(index) if known else None
            if known is None or future is None or is_deleted:
                return
            if phase == PodPhase.RUNNING:
                _begin(future)
            if phase == PodPhase.FAILED and self._job.retries:
                return  # it may be tried again: the end of the job tells
            if phase in _ENDED and index not in known.reading:
                known.reading.add(index)
                self._reads.put(lambda client: self._read(client, pod))

    def _read_all(self) -> None:
        with SyncClient(self._client.config, component="sdk") as client:
            while (read := self._reads.get()) is not None:
                try:
                    read(client)
                except KubeError as error:
                    self._fail_all(error)

    def _read(self, client: SyncClient, pod: Object) -> None:
        """Resolve the future of a pod that has ended."""
        name, index = _call_of(pod)
        with self._lock:
            known = self._jobs.get(name)
            if known is None or index not in known.pending:
                return
            job = known.object
        lines = (line.text for line in pod_lines(client, pod, "", LogOptions()))
        outcome = outcome_in(lines, token_of(job))
        if outcome is None:
            return  # `_finish` tells why, when the job has finished
        try:
            result = result_of(outcome, job, pod["metadata"]["name"])
        except BaseException as error:
            self._resolve(name, index, error=error)
        else:
            self._resolve(name, index, result)

    def _finish(self, client: SyncClient, job: Object) -> None:
        """Resolve all futures of a job that has finished."""
        metadata = job["metadata"]
        with self._lock:
            if metadata["name"] not in self._jobs:
                return
        pods = pods_of(client, metadata["name"], metadata["namespace"])
        for pod in pods:
            if (pod.get("status") or {}).get("phase") in _ENDED:
                self._read(client, pod)
        reason = explanation(job, None, None, pods).reason
        self._end(metadata["name"], lambda _: ended_without_result(job, reason))

    def _resolve(
        self, name: str, index: int, result: Any = None, error: BaseException | None = None
    ) -> None:
        with self._lock:
            known = self._jobs.get(name)
            future = known.pending.pop(index, None) if known else None
            if known is None or future is None:
                return
            if not known.pending:
                del self._jobs[name]
        # Callbacks of the future run here, without the lock.
        if not _begin(future):
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
        self._stop_if_idle()

    def _end(self, name: str, error_of: Callable[[int], BaseException]) -> None:
        with self._lock:
            known = self._jobs.get(name)
            pending = list(known.pending) if known else []
        for index in pending:
            self._resolve(name, index, error=error_of(index))

    def _fail_all(self, error: KubeError) -> None:
        """Fail all calls: the cluster cannot be reached, or refuses to be watched."""
        with self._lock:
            names = list(self._jobs)
        for name in names:
            self._end(name, lambda _: error)

    def _cancelled(self, name: str, index: int) -> None:
        with self._lock:
            known = self._jobs.get(name)
            if known is None or known.pending.pop(index, None) is None:
                return
            is_last = not known.pending
            if is_last:
                del self._jobs[name]
                self._client.delete(JOBS, name, namespace=self._namespace)
        self._stop_if_idle()

    def _stop_if_idle(self) -> None:
        with self._lock:
            if self._is_shut_down and not self._jobs and not self._stopped.is_set():
                self._stopped.set()
                for _ in range(READERS):
                    self._reads.put(None)


def map_jobs(
    fn: Callable[..., T],
    *iterables: Iterable[Any],
    task: Task | None = None,
    queue: str = "",
    max_workers: int | None = None,
    retries: int = 0,
    timeout_s: float | None = None,
    client: SyncClient | None = None,
) -> list[T]:
    """Return the results of `fn` for the items, in order: one job with a pod for each item.

    It is `Executor.map`, and raises what a call raises; `Job.array` does the same for a command.

    Example:
        print(map_jobs(abs, [-1, -2], task=Task(cpu=1)))
    """
    with Executor(
        task, queue=queue, max_workers=max_workers, retries=retries, client=client
    ) as executor:
        return list(executor.map(fn, *iterables, timeout=timeout_s))


def _begin(future: futures.Future[Any]) -> bool:
    """Set a future to running, if it is not; return False if it was cancelled."""
    if future.cancelled() or future.running():
        return future.running()
    try:
        return future.set_running_or_notify_cancel()
    except RuntimeError:  # cancelled just now
        return False


def _say_why(waiting: Iterable[Any]) -> None:
    """Print why calls have not ended, once for each job."""
    for job in {future.job.name: future.job for future in waiting}.values():
        why = timeouts.reasons(job.config, job.namespace, job.name)
        if why:
            print(f"waiting for job {job.name}: {'; '.join(why)}", file=sys.stderr)


def _started(target: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True, name="hekla-executor")
    thread.start()
    return thread


def _call_of(pod: Object) -> tuple[str, int]:
    """Return the job of a pod, and the index of its call."""
    labels = pod["metadata"].get("labels") or {}
    return str(labels.get(wellknown.JOB_NAME, "")), index_of_pod(pod) or 0


def _of_chunk(fn: Callable[..., T]) -> Callable[[Sequence[Sequence[Any]]], list[T]]:
    # A local function is pickled by value, so images need not have hekla.
    def run(chunk: Sequence[Sequence[Any]]) -> list[T]:
        return [fn(*arguments) for arguments in chunk]

    run.__name__ = name_of(fn)
    return run


def _results(started: Sequence[JobFuture[list[T]]], deadline: float | None) -> Iterator[T]:
    try:
        for future in started:
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            yield from future.result(left_s)
    finally:
        for future in started:
            future.cancel()

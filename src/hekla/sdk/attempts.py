"""The output of attempts: a retried job or index has a pod for each, a restarted container a run.

Attempts are counted from 1 for each pod name, the oldest first, as far as their output is kept.
hekla's server keeps the output of deleted pods for a while. Kubernetes has that of the present pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count

from hekla.kube import calls
from hekla.kube.errors import BadRequest, KubeError, NotFound
from hekla.kube.sync_client import SyncClient
from hekla.sdk import job_commands
from hekla.sdk.container_runs import Run, has_several, latest_runs
from hekla.sdk.logs import LogLine, LogOptions, lines_of_run, pods_of
from hekla.units.objects import Object

MAX_PODS = 1000
"""Pods of a job that are asked for although they do not exist."""
HEKLA = "+hekla"
"""Part of the version of hekla's server."""


def attempt_lines(
    client: SyncClient,
    job: Object,
    attempt: int | None = None,
    *,
    task: str = "",
    container: str = "",
    options: LogOptions | None = None,
) -> Iterator[LogLine]:
    """Yield the output of one attempt of each pod, or of all."""
    if attempt is not None and attempt < 1:
        raise ValueError(f"attempt {attempt}: attempts are counted from 1")
    metadata = job["metadata"]
    names = {
        str(each.get("name")): int(each.get("replicas") or 0) for each in job_commands.tasks_of(job)
    }
    pods = pods_of(client, metadata["name"], metadata["namespace"], task)
    live = {pod["metadata"]["name"]: pod for pod in job_commands.owned(job, pods)}
    reader = _Reader(
        client, metadata["namespace"], metadata["uid"], options or LogOptions(), _keeps_logs(client)
    )
    for name in _pod_names(metadata["name"], names, live, task):
        yield from reader.lines(name, live.get(name), container, attempt)


def lines_of_deleted_job(
    client: SyncClient,
    uid: str,
    name: str,
    namespace: str,
    tasks: Mapping[str, int],
    attempt: int | None = None,
    *,
    task: str = "",
    container: str = "",
    options: LogOptions | None = None,
) -> Iterator[LogLine]:
    """Yield what is kept of the output of a job that was deleted; `tasks` are pods by task."""
    reader = _Reader(client, namespace, uid, options or LogOptions(), _keeps_logs(client))
    for pod in _pod_names(name, tasks, {}, task):
        yield from reader.lines(pod, None, container, attempt)


def _pod_names(
    job: str, tasks: Mapping[str, int], live: Mapping[str, Object], only: str
) -> Iterator[str]:
    """Yield the names of the pods of a job, of those that exist too."""
    yield from live
    asked = 0
    for task, pods in tasks.items():
        if only in ("", task):
            for index in range(pods):
                name = f"{job}-{task}-{index}"
                if name not in live and (asked := asked + 1) <= MAX_PODS:
                    yield name


@dataclass(frozen=True)
class _Reader:
    client: SyncClient
    namespace: str
    owner: str
    options: LogOptions
    keeps_logs: bool

    def lines(
        self, name: str, pod: Object | None, only: str, attempt: int | None
    ) -> Iterator[LogLine]:
        if pod is None:  # the names of its containers are unknown
            yield from self._of_container(Run(self.namespace, name, "", only), 0, attempt)
            return
        begun = latest_runs(pod)
        for container, last in begun.items():
            if only in ("", container):
                run = Run(self.namespace, name, pod["metadata"]["uid"], container)
                run = replace(run, is_of_several=has_several(pod))
                yield from self._of_container(run, last + 1, attempt)

    def _of_container(self, run: Run, here: int, attempt: int | None) -> Iterator[LogLine]:
        """Yield the output of a container; `here` runs are of the present pod."""
        kept = self._kept(run, attempt)
        number = -1
        for number in kept:
            old = replace(run, uid="", owner=self.owner, number=number, attempt=number + 1)
            yield from self._read(old)
        before = number + 1
        if attempt is not None and (before == attempt or not here):
            return
        if attempt is not None:
            before = sum(1 for _ in self._kept(run, None))
        for number in range(here):
            if attempt in (None, before + number + 1):
                # Kubernetes knows the last run and the one before it, and ignores the number.
                previous = number == here - 2 and not self.keeps_logs
                if number >= here - 2:
                    now = replace(
                        run, number=number, attempt=before + number + 1, is_previous=previous
                    )
                    yield from self._read(now)

    def _kept(self, run: Run, attempt: int | None) -> Iterator[int]:
        """Yield the numbers of the kept runs of deleted pods, or the wanted one if it is kept."""
        if not self.keeps_logs:
            return
        for number in count() if attempt is None else (attempt - 1,):
            asked = replace(run, uid="", owner=self.owner, number=number)
            try:
                for _ in lines_of_run(self.client, asked, LogOptions(limit_bytes=1)):
                    pass
            except (BadRequest, NotFound):
                return
            yield number

    def _read(self, run: Run) -> Iterator[LogLine]:
        options = replace(self.options, follow=False, previous=run.is_previous)
        try:
            yield from lines_of_run(self.client, run, options)
        except (BadRequest, NotFound):
            return


def _keeps_logs(client: SyncClient) -> bool:
    """Return whether the server is hekla's: another would ignore the number of an attempt."""
    try:
        return HEKLA in client.call(calls.other("GET", "/version")).decode()
    except KubeError:
        return False

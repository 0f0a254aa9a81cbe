"""The history controller: it records each job once, when it ends or is deleted.

A record is written when the job ends, so that it can be read at once, and again when the last of
its pods has ended; then it is settled. At the start all finished jobs are visited, so what ended
while no controller ran is recorded too, as long as the API shows it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from hekla.api.wellknown import JobPhase
from hekla.controllers.history.accounting import JobView, job_record, pod_account
from hekla.controllers.informers import OWNER, InformerFactory, is_volcano_job_ref
from hekla.controllers.metrics import Metrics
from hekla.controllers.objects import Key, controller_of, job_phase, key_of, uid_of
from hekla.controllers.reconciler import Reconciler
from hekla.kube.recorder import EventRecorder
from hekla.kube.resources import JOBS, PODGROUPS, PODS
from hekla.records.store import HistoryError, HistoryStore, PodAccount
from hekla.units.objects import Object

log = logging.getLogger("hekla.controllers")

RETRY_S: Final = 30.0
MAX_UNSETTLED: Final = 20_000
MAX_SETTLED: Final = 50_000
MAX_ACCOUNTS: Final = 50_000


@dataclass(frozen=True, slots=True)
class Candidate:
    """A job to record."""

    job: Object
    deleted_at: float | None = None


class HistoryController(Reconciler):
    """Writes ended jobs into the history file."""

    name = "history-controller"
    workers = 2

    def __init__(
        self,
        informers: InformerFactory,
        recorder: EventRecorder,
        metrics: Metrics,
        *,
        store: HistoryStore,
    ) -> None:
        super().__init__(informers, recorder, metrics)
        self._store = store
        self._jobs = informers.cache(JOBS)
        self._pods = informers.cache(PODS)
        self._groups = informers.cache(PODGROUPS)
        self._unsettled: OrderedDict[str, Candidate] = OrderedDict()
        """By the uid of the job."""
        self._settled: OrderedDict[str, None] = OrderedDict()
        """Uids of jobs with a final record; others are looked up in the file."""
        self._accounts: list[tuple[str, PodAccount]] = []
        """Of deleted pods, with the uid of their job, until they are written."""
        self._problem = ""
        self._jobs.add_handler(self._on_job)
        self._pods.add_handler(self._on_pod)

    def _on_job(self, event: str, old: Object | None, new: Object | None) -> None:
        job = new or old
        assert job is not None
        uid = uid_of(job)
        if uid in self._settled:
            if event == "DELETED":
                del self._settled[uid]
            return
        if event == "DELETED":
            self._add(uid, Candidate(job, self.clock.now()))
        elif job_phase(job) in JobPhase.FINISHED:
            self._add(uid, Candidate(job))

    def _add(self, uid: str, candidate: Candidate) -> None:
        self._unsettled[uid] = candidate
        if len(self._unsettled) > MAX_UNSETTLED:
            _, lost = self._unsettled.popitem(last=False)
            log.warning("job %s/%s is not in the history: too many wait", *key_of(lost.job))
        self.queue.add((uid, ""))

    def _on_pod(self, event: str, old: Object | None, new: Object | None) -> None:
        pod = new or old
        assert pod is not None
        owner = controller_of(pod)
        if owner is None or not is_volcano_job_ref(owner) or owner["uid"] in self._settled:
            return
        if event == "DELETED":
            self._accounts.append((owner["uid"], pod_account(pod, self.clock.now())))
            del self._accounts[:-MAX_ACCOUNTS]
            self.queue.add(("", ""))
        if owner["uid"] in self._unsettled:
            self.queue.add((owner["uid"], ""))

    async def reconcile(self, key: Key) -> float | None:
        """Record the job with a uid; an empty one means only the accounts of deleted pods."""
        try:
            await self._write_accounts()
            if key[0]:
                await self._record(key[0])
        except HistoryError as error:
            self.count_error()
            if str(error) != self._problem:
                self._problem = str(error)
                log.error("%s; jobs are recorded when it works again", error)
            return RETRY_S
        if self._problem:
            self._problem = ""
            log.warning("history file %s works again", self._store.path)
        return None

    async def _write_accounts(self) -> None:
        accounts, self._accounts = self._accounts, []
        if not accounts:
            return
        try:
            await asyncio.to_thread(self._store.add_pods, accounts)
        except HistoryError:
            self._accounts = [*accounts, *self._accounts][-MAX_ACCOUNTS:]
            raise

    async def _record(self, uid: str) -> None:
        candidate = self._unsettled.get(uid)
        if candidate is None:
            return
        if await asyncio.to_thread(self._store.is_settled, uid):
            self._settle(uid)
            return
        view = await self._view(uid, candidate)
        record, is_settled = job_record(view), view.is_settled
        await asyncio.to_thread(self._store.put, record, settled=is_settled)
        if is_settled:
            self._settle(uid)

    async def _view(self, uid: str, candidate: Candidate) -> JobView:
        deleted = await asyncio.to_thread(self._store.pods_of, uid)
        present = [pod_account(pod) for pod in self._pods.by_index(OWNER, uid)]
        by_uid = {each.uid: each for each in (*present, *deleted)}
        groups = self._groups.by_index(OWNER, uid)
        return JobView(
            job=candidate.job,
            group=groups[0] if groups else None,
            pods=[by_uid[each] for each in sorted(by_uid)],
            now=self.clock.now(),
            deleted_at=candidate.deleted_at,
        )

    def _settle(self, uid: str) -> None:
        candidate = self._unsettled.pop(uid, None)
        if candidate is not None and candidate.deleted_at is not None:
            return  # it cannot change again
        self._settled[uid] = None
        if len(self._settled) > MAX_SETTLED:
            self._settled.popitem(last=False)

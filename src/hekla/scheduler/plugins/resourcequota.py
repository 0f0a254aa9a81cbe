"""resourcequota: do not enqueue jobs whose pods the namespace's ResourceQuota would refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hekla.scheduler.framework.answers import REJECT, Vote
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.framework.verdict import Blocked, Gate, Verdict
from hekla.scheduler.state.dimensions import amount_of, show_amount
from hekla.scheduler.state.model import Job
from hekla.units.quantity import QuantityError

if TYPE_CHECKING:
    from hekla.scheduler.session.session import Session


class ResourceQuota(Plugin, name="resourcequota"):
    """Counts `minResources` against hard limits, with what this cycle enqueued before.

    Scopes are ignored, as in Volcano.
    """

    def open(self, session: Session) -> None:
        self._session = session
        self._let_in: dict[str, dict[int, float]] = {}

    def job_enqueueable(self, job: Job) -> Vote | None:
        wanted_r = job.min_resources_r
        if wanted_r is None:
            return None
        names = self._session.dimensions.names
        let_in = self._let_in.get(job.namespace, {})
        quotas = self._session.cluster.quotas.get(job.namespace, {})
        for _, quota in sorted(quotas.items()):
            hard = quota.status.hard or quota.spec.hard
            for row in job.min_rows:
                name = names[row]
                for limit_name in (name, f"requests.{name}"):
                    if limit_name not in hard:
                        continue
                    limit = self._amount(name, hard[limit_name])
                    used = self._amount(name, quota.status.used.get(limit_name, 0))
                    used += let_in.get(row, 0.0)
                    if used + wanted_r[row] > limit:
                        self._explain(
                            job, quota.name, Blocked(name, float(wanted_r[row]), limit, used)
                        )
                        return REJECT
        return None

    def job_enqueued(self, job: Job) -> None:
        if job.min_resources_r is not None:
            let_in = self._let_in.setdefault(job.namespace, {})
            for row in job.min_rows:
                let_in[row] = let_in.get(row, 0.0) + float(job.min_resources_r[row])

    def _amount(self, name: str, text: str | int | float) -> float:
        try:
            return amount_of(name, text)
        except QuantityError:
            return 0.0

    def _explain(self, job: Job, quota: str, blocked: Blocked) -> None:
        over = show_amount(blocked.resource, blocked.used + blocked.asked - blocked.allowed)
        self._session.verdicts.explain(
            Verdict(
                job.key,
                Gate.NOT_ENQUEUED,
                f"resource quota insufficient: {quota!r} of namespace {job.namespace!r}",
                blocked=(blocked,),
                change=f"{over} more {blocked.resource} in quota {quota!r}",
            )
        )

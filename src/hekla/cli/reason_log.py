"""The reasons why followed jobs do not run: each distinct one is returned once.

Pods, events and PodGroups are watched separately, so an event may arrive before its pod. Such
events are kept, up to a limit, until the pod shows to which job it belongs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final

from hekla.sdk import pending_reasons
from hekla.sdk.pending_reasons import Reason
from hekla.units.objects import Object

MAX_EARLY_EVENTS: Final = 1000
MAX_REASONS: Final = 200
"""Distinct reasons per job; later ones are in `hekla explain`."""


class ReasonLog:
    """Collects reasons by job and remembers which were returned."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[str, list[Reason]]] = {}
        self._events: dict[str, list[Reason]] = {}
        self._job_of: dict[str, str] = {}
        self._early: OrderedDict[str, list[Reason]] = OrderedDict()
        self._returned: dict[str, list[str]] = {}

    def add_owner(self, uid: str, job: str) -> None:
        """Record that an object with this UID belongs to a job, and take over its early events."""
        if self._job_of.setdefault(uid, job) == job:
            for reason in self._early.pop(uid, ()):
                self._add_event(job, reason)

    def on_pod(self, job: str, pod: Object) -> None:
        """Record the present reasons of a pod."""
        uid = str(pod["metadata"]["uid"])
        self.add_owner(uid, job)
        reasons = list(pending_reasons.of_pod(pod))
        pods = self._pods.setdefault(job, {})
        if reasons:
            pods[uid] = reasons
        else:
            pods.pop(uid, None)

    def on_pod_deleted(self, pod: Object) -> None:
        """Forget a pod."""
        uid = str(pod["metadata"]["uid"])
        self._pods.get(self._job_of.pop(uid, ""), {}).pop(uid, None)

    def on_event(self, event: Object) -> None:
        """Record the reason in an event on a job, its PodGroup or one of its pods."""
        uid = str((event.get("involvedObject") or {}).get("uid") or "")
        for reason in pending_reasons.of_event(event):
            if uid in self._job_of:
                self._add_event(self._job_of[uid], reason)
                continue
            self._early.setdefault(uid, []).append(reason)
            if len(self._early) > MAX_EARLY_EVENTS or len(self._early[uid]) > MAX_REASONS:
                self._early.popitem(last=False)

    def _add_event(self, job: str, reason: Reason) -> None:
        events = self._events.setdefault(job, [])
        if len(events) < MAX_REASONS:
            events.append(reason)

    def present(self, job: str) -> list[Reason]:
        """Return the present reasons of a job's pods, equal ones once."""
        first: dict[str, Reason] = {}
        for reasons in self._pods.get(job, {}).values():
            for reason in reasons:
                first.setdefault(reason.core, reason)
        return list(first.values())

    def new(self, job: str, group: Object | None) -> Iterator[Reason]:
        """Yield the reasons that were not returned before."""
        events = self._events.pop(job, [])
        yield from self._unseen(
            job, [*pending_reasons.of_group(group), *self.present(job), *events]
        )

    def _unseen(self, job: str, reasons: Iterable[Reason]) -> Iterator[Reason]:
        returned = self._returned.setdefault(job, [])
        for reason in reasons:
            if len(returned) >= MAX_REASONS or any(reason.core in text for text in returned):
                continue
            returned.append(f"{reason.core}\n{reason.text}")
            yield reason

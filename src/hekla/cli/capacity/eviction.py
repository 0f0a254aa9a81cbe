"""Emptying a node through the eviction API, and waiting until a node is empty."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from hekla.api.wellknown import PodPhase
from hekla.cli.capacity.usage import is_of_node
from hekla.cli.vcctl.output import name_of, namespace_of
from hekla.kube.errors import Gone, NotFound, TooManyRequests
from hekla.kube.resources import PODS
from hekla.kube.sync_client import SyncClient
from hekla.units.objects import Object

RETRY_S: Final = 5.0
"""The pause before a refused eviction is tried again, as kubectl's; changes of pods end it."""


def pods_of_jobs(pods: Iterable[Object]) -> list[Object]:
    """Return the pods that a drain waits for: unfinished, and not of the node itself."""
    return [
        pod
        for pod in pods
        if (pod.get("status") or {}).get("phase") not in (PodPhase.SUCCEEDED, PodPhase.FAILED)
        and not is_of_node(pod)
    ]


def without_controller(pods: Iterable[Object]) -> list[str]:
    """Return the pods that nothing creates again after an eviction."""
    return [
        shown(pod)
        for pod in pods
        if not any(
            owner.get("controller") for owner in pod["metadata"].get("ownerReferences") or ()
        )
    ]


def shown(pod: Object) -> str:
    return f"{namespace_of(pod)}/{name_of(pod)}"


class TookTooLong(Exception):
    """The node was not empty in time; `remaining` are its pods, with reasons if there are any."""

    def __init__(self, remaining: list[str]) -> None:
        super().__init__(", ".join(remaining))
        self.remaining = remaining


@dataclass
class NodeEmptier:
    """Evicts the pods of a node and waits until they are gone."""

    client: SyncClient
    node: str
    report: Callable[[str], None]
    grace_s: int | None = None
    timeout_s: float | None = None
    monotonic: Callable[[], float] = time.monotonic
    _accepted: set[str] = field(default_factory=set)
    _refused: dict[str, str] = field(default_factory=dict)
    """By pod: why it may not be evicted at present."""

    def __post_init__(self) -> None:
        # The time is counted from here, so that several nodes share it.
        self._deadline = None if self.timeout_s is None else self.monotonic() + self.timeout_s

    def evict(self) -> None:
        """Evict the pods; try those again that a disruption budget protects."""
        self._until(self._all_accepted)

    def until_empty(self) -> None:
        """Wait until no pods of jobs run on the node."""
        self._until(lambda pods: not pods)

    def pods(self) -> list[Object]:
        """Return the pods on the node that a drain waits for."""
        return pods_of_jobs(self._list()[0])

    def _list(self) -> tuple[list[Object], str]:
        listed = self.client.list(PODS, field_selector=f"spec.nodeName={self.node}")
        return listed.items, listed.resource_version

    def _all_accepted(self, pods: list[Object]) -> bool:
        self._refused = {}
        for pod in pods:
            uid = str(pod["metadata"]["uid"])
            if uid not in self._accepted and self._evict(pod, uid):
                self._accepted.add(uid)
        return not self._refused

    def _evict(self, pod: Object, uid: str) -> bool:
        """Evict a pod; return whether that was accepted."""
        try:
            self.client.evict(
                name_of(pod), namespace=namespace_of(pod), grace_period_s=self.grace_s, uid=uid
            )
        except NotFound:
            return True
        except TooManyRequests as error:
            self._refused[shown(pod)] = error.message
            return False
        self.report(f"pod {shown(pod)} is evicted")
        return True

    def _until(self, is_done: Callable[[list[Object]], bool]) -> None:
        told: dict[str, str] = {}
        while True:
            found, version = self._list()
            pods = pods_of_jobs(found)
            if is_done(pods):
                return
            for name, reason in self._refused.items():
                if told.get(name) != reason:
                    told[name] = reason
                    self.report(f"pod {name} is not evicted yet: {reason}")
            left_s = self._left_s()
            if left_s <= 0:
                raise TookTooLong(
                    [_with(shown(pod), self._refused.get(shown(pod), "")) for pod in pods]
                )
            self._until_change(version, left_s)

    def _left_s(self) -> float:
        if self._deadline is None:
            return RETRY_S
        return min(RETRY_S, self._deadline - self.monotonic())

    def _until_change(self, version: str, timeout_s: float) -> None:
        """Wait for a change of the node's pods, at most for a time."""
        try:
            with self.client.watch(
                PODS,
                field_selector=f"spec.nodeName={self.node}",
                resource_version=version,
                timeout_s=timeout_s,
            ) as events:
                for _ in events:
                    return
        except Gone:
            return


def _with(name: str, reason: str) -> str:
    return f"{name} ({reason})" if reason else name

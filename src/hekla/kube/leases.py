"""Leader election: at most one of several replicas acts.

    elector = LeaderElector(client, "hekla-scheduler", "host-a_4711", namespace="volcano-system")
    await elector.run(schedule_for_ever)

A Lease names the holder, which renews it. Other candidates take it only after they saw it unchanged
for its whole duration, by a conditional write.

Note: clocks of different machines are never compared. `renewTime` is informational; a candidate
measures on its monotonic clock how long the record is unchanged. The holder counts from before it
sent its last renewal and gives up after 10 s, while others wait 15 s. Work that ignores
cancellation for these 5 s cannot be prevented: check `is_leader` before each action, or pass it to
the client as `fence`. The elector needs a separate client without a fence.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any, Protocol, TypeVar

from hekla.kube.errors import Conflict, KubeError
from hekla.kube.resources import LEASES, Obj, Resource
from hekla.units.clock import Clock, SystemClock
from hekla.units.timestamps import format_micro_time

logger = logging.getLogger(__name__)

R = TypeVar("R")


class LeadershipLost(KubeError):
    """Another replica may be the leader now. Usually the process ends and restarts."""


class LeaseClient(Protocol):
    """The part of `client.Client` that leader election uses."""

    async def find(
        self, resource: Resource[Obj], name: str, *, namespace: str | None = None
    ) -> Obj | None: ...

    async def create(
        self, resource: Resource[Obj], body: Any, *, namespace: str | None = None
    ) -> Obj: ...

    async def replace(
        self, resource: Resource[Obj], body: Any, *, namespace: str | None = None
    ) -> Obj: ...


class LeaderElector:
    """A candidate for one lease."""

    def __init__(
        self,
        client: LeaseClient,
        name: str,
        identity: str,
        *,
        namespace: str,
        lease_duration_s: float = 15.0,
        renew_deadline_s: float = 10.0,
        retry_period_s: float = 2.0,
        on_lost: Callable[[], None] | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        if not lease_duration_s > renew_deadline_s > retry_period_s > 0:
            raise ValueError("required: lease_duration_s > renew_deadline_s > retry_period_s > 0")
        if not identity:
            raise ValueError("a candidate needs a unique identity")
        self.name = name
        self.identity = identity
        self.namespace = namespace
        self._client = client
        self._lease_duration_s = lease_duration_s
        self._renew_deadline_s = renew_deadline_s
        self._retry_period_s = retry_period_s
        self._on_lost = on_lost
        self._clock: Clock = clock or SystemClock()
        self._random = random or Random()
        self._spec: dict[str, Any] = {}
        self._changed_at: float | None = None
        self._lead_until = float("-inf")
        self._lease: Obj | None = None

    @property
    def is_leader(self) -> bool:
        """Whether this candidate is the leader now. Check before each action."""
        return self._clock.monotonic() < self._lead_until

    @property
    def leader(self) -> str:
        """The holder when the lease was last read; empty if none."""
        return str(self._spec.get("holderIdentity") or "")

    @property
    def term(self) -> int:
        """The number of leader changes; usable as a fencing token."""
        return int(self._spec.get("leaseTransitions") or 0)

    async def run(self, lead: Callable[[], Awaitable[object]]) -> None:
        """Wait for leadership, then run `lead` while it lasts.

        Returns when `lead` does. If leadership is lost first, `lead` is cancelled, `on_lost` is
        called and LeadershipLost raised. The lease is released only after `lead` has stopped.
        """
        await self.acquire()
        leading = asyncio.ensure_future(lead())
        renewing = asyncio.create_task(self._renew_until_lost(), name=f"lease {self.name}")
        try:
            await asyncio.wait((leading, renewing), return_when=asyncio.FIRST_COMPLETED)
            if not leading.done():
                logger.error("lost the lease %s/%s", self.namespace, self.name)
                self._lead_until = float("-inf")
                leading.cancel()
                if self._on_lost is not None:
                    self._on_lost()
                await asyncio.wait((leading,))
                raise LeadershipLost(
                    f"lease {self.namespace}/{self.name}: {self.identity} is no longer the leader; "
                    f"last seen leader: {self.leader or 'none'}"
                )
            leading.result()
        finally:
            leading.cancel()
            await asyncio.wait((leading,))
            renewing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await renewing
            await self.release()

    async def acquire(self) -> None:
        """Wait for leadership."""
        while True:
            # A response that takes longer than the renewal deadline is useless.
            await self._within(self._try(), self._renew_deadline_s)
            if self.is_leader:
                logger.info("%s is the leader of %s/%s", self.identity, self.namespace, self.name)
                return
            await self._clock.sleep(self._retry_period_s * self._random.uniform(1.0, 1.2))

    async def release(self) -> None:
        """Give up leadership and release the lease, so that others need not wait."""
        if not self.is_leader or self._lease is None:
            return
        self._lead_until = float("-inf")  # stop leading before the release
        now = format_micro_time(self._clock.now())
        spec = {
            **self._spec,
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "acquireTime": now,
            "renewTime": now,
        }
        with contextlib.suppress(KubeError):
            await self._within(self._write({**self._lease, "spec": spec}), self._retry_period_s)

    async def _renew_until_lost(self) -> None:
        while self.is_leader:
            remaining_s = self._lead_until - self._clock.monotonic()
            # At least a moment: a remainder too small to advance the clock would loop forever.
            await self._clock.sleep(min(self._retry_period_s, max(remaining_s, 0.001)))
            remaining_s = self._lead_until - self._clock.monotonic()
            if remaining_s > 0:
                await self._within(self._try(), remaining_s)
            if self.leader != self.identity:
                return

    async def _try(self) -> None:
        """Read the lease; acquire or renew it if it is free or ours."""
        try:
            await self._read_lease()
            if self._may_acquire():
                # Measured from before the write: others cannot have seen it earlier.
                asked_at = self._clock.monotonic()
                await self._write(self._renewed_lease())
                self._lead_until = asked_at + self._renew_deadline_s
        except Conflict:
            logger.debug("lease %s/%s: another candidate was faster", self.namespace, self.name)
        except KubeError as error:
            logger.warning("lease %s/%s: %s", self.namespace, self.name, error)

    async def _read_lease(self) -> None:
        self._lease = await self._client.find(LEASES, self.name, namespace=self.namespace)
        self._observe((self._lease or {}).get("spec") or {})

    def _observe(self, spec: dict[str, Any]) -> None:
        if spec != self._spec or self._changed_at is None:
            self._spec = spec
            # Measured after the response: the wait is too long rather than too short.
            self._changed_at = self._clock.monotonic()

    def _may_acquire(self) -> bool:
        if self.leader in ("", self.identity):
            return True
        duration_s = float(self._spec.get("leaseDurationSeconds") or self._lease_duration_s)
        seen_since = self._clock.monotonic() if self._changed_at is None else self._changed_at
        return self._clock.monotonic() >= seen_since + duration_s

    def _renewed_lease(self) -> Obj:
        now = format_micro_time(self._clock.now())
        is_renewal = self.leader == self.identity and self._lease is not None
        spec = {
            **self._spec,
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, round(self._lease_duration_s)),
            "acquireTime": self._spec.get("acquireTime", now) if is_renewal else now,
            "renewTime": now,
            "leaseTransitions": self.term + (0 if is_renewal or self._lease is None else 1),
        }
        if self._lease is None:
            return {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.kind,
                "metadata": {"name": self.name, "namespace": self.namespace},
                "spec": spec,
            }
        return {**self._lease, "spec": spec}

    async def _write(self, lease: Obj) -> None:
        # The resourceVersion of the last read makes the server refuse if the lease has changed.
        if lease["metadata"].get("resourceVersion"):
            written = await self._client.replace(LEASES, lease, namespace=self.namespace)
        else:
            written = await self._client.create(LEASES, lease, namespace=self.namespace)
        self._lease = written
        self._observe(written.get("spec") or {})

    async def _within(self, work: Coroutine[Any, Any, R], seconds: float) -> R | None:
        """Return the result of `work`, or None after the timeout."""
        task = asyncio.create_task(work)
        alarm = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait((task, alarm), return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            for each in (task, alarm):
                each.cancel()
            await asyncio.wait((task, alarm))

"""The scheduler as a running part: watches in, effects out to the API server.

A change wakes it; what changes while it decides is gathered for the next cycle. Idle costs nothing.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack

from hekla.api import wellknown
from hekla.kube.client import Client
from hekla.kube.errors import KubeError
from hekla.kube.informers import Informer
from hekla.kube.resources import NODES, PODGROUPS, PODS
from hekla.scheduler.cycle import Bind, Effect, Object, decide

log = logging.getLogger("hekla.scheduler")

GATHER_S = 0.005
RETRY_S = 0.5
MAX_BINDS_IN_FLIGHT = 64


class Scheduler:
    def __init__(self, client: Client, *, name: str = wellknown.DEFAULT_SCHEDULER) -> None:
        self._client = client
        self._name = name
        self._nodes: Informer[Object] = Informer(client, NODES, dict)
        self._groups: Informer[Object] = Informer(client, PODGROUPS, dict)
        self._pods: Informer[Object] = Informer(client, PODS, dict)
        self._changed = asyncio.Event()
        self._bound: dict[str, str] = {}

    async def run(self) -> None:
        """Until cancelled."""
        async with AsyncExitStack() as stack:
            for informer in (self._nodes, self._groups, self._pods):
                informer.add_handler(lambda *_: self._changed.set())
                await stack.enter_async_context(informer)
            for informer in (self._nodes, self._groups, self._pods):
                await informer.synced()
            while True:
                await self._changed.wait()
                await asyncio.sleep(GATHER_S)
                self._changed.clear()
                if not await self._cycle():
                    await asyncio.sleep(RETRY_S)
                    self._changed.set()

    async def _cycle(self) -> bool:
        """Decide and do; False when something failed and must be tried again."""
        pods = [self._with_bind(pod) for pod in self._pods.list()]
        effects = decide(
            list(self._nodes.list()), list(self._groups.list()), pods, scheduler=self._name
        )
        limit = asyncio.Semaphore(MAX_BINDS_IN_FLIGHT)

        async def perform(effect: Effect) -> bool:
            async with limit:
                return await self._perform(effect)

        return all(await asyncio.gather(*(perform(effect) for effect in effects)))

    def _with_bind(self, pod: Object) -> Object:
        """A pod we have bound counts as bound, even before the watch says so."""
        node = self._bound.get(pod["metadata"]["uid"])
        if node is None:
            return pod
        if pod["spec"].get("nodeName"):
            del self._bound[pod["metadata"]["uid"]]
            return pod
        return {**pod, "spec": {**pod["spec"], "nodeName": node}}

    async def _perform(self, effect: Effect) -> bool:
        try:
            if isinstance(effect, Bind):
                await self._client.bind(
                    effect.pod, effect.node, namespace=effect.namespace, uid=effect.uid
                )
                self._bound[effect.uid] = effect.node
            else:
                await self._client.patch_status(
                    PODGROUPS, effect.group, effect.status, namespace=effect.namespace
                )
        except KubeError as error:
            log.warning("%s failed: %s", effect, error)
            return False
        return True

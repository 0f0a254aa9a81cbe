"""The controllers as a running part: informers feed a keyed queue, workers perform effects."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack

from hekla.api import wellknown
from hekla.api.wellknown import QueueState
from hekla.controllers import job as jobs
from hekla.kube.client import Client
from hekla.kube.errors import AlreadyExists, KubeError, NotFound
from hekla.kube.informers import Informer
from hekla.kube.resources import JOBS, PODGROUPS, PODS, QUEUES
from hekla.units.clock import Clock, SystemClock
from hekla.units.timestamps import format_time

log = logging.getLogger("hekla.controllers")

Key = tuple[str, str]
MAX_CREATES_IN_FLIGHT = 50
RETRY_S = 0.5


class Controllers:
    def __init__(self, client: Client, *, clock: Clock | None = None) -> None:
        self._client = client
        self._clock = clock or SystemClock()
        self._jobs: Informer[jobs.Object] = Informer(client, JOBS, dict)
        self._groups: Informer[jobs.Object] = Informer(client, PODGROUPS, dict)
        self._pods: Informer[jobs.Object] = Informer(
            client, PODS, dict, indexers={"job": _job_of_pod}
        )
        self._due: dict[Key, None] = {}
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        await self._ensure_queues()  # on Kubernetes nobody has made them before us
        async with AsyncExitStack() as stack:
            for informer in (self._jobs, self._groups, self._pods):
                informer.add_handler(self._note)
                await stack.enter_async_context(informer)
            for informer in (self._jobs, self._groups, self._pods):
                await informer.synced()
            while True:
                await self._changed.wait()
                self._changed.clear()
                due, self._due = self._due, {}
                await asyncio.gather(*(self._sync(key) for key in due))

    def _note(self, _: str, old: jobs.Object | None, new: jobs.Object | None) -> None:
        obj = new or old
        assert obj is not None
        if obj.get("kind") == "Job" and obj.get("apiVersion") == wellknown.BATCH_API:
            self._add((obj["metadata"]["namespace"], obj["metadata"]["name"]))
            return
        for owner in obj["metadata"].get("ownerReferences") or ():
            if owner["kind"] == "Job" and owner["apiVersion"] == wellknown.BATCH_API:
                self._add((obj["metadata"]["namespace"], owner["name"]))

    def _add(self, key: Key) -> None:
        self._due[key] = None
        self._changed.set()

    async def _sync(self, key: Key) -> None:
        namespace, name = key
        job = self._jobs.get(namespace, name)
        if job is None:
            return
        group = self._groups.get(namespace, jobs.group_name(job))
        uid = job["metadata"]["uid"]
        pods = list(self._pods.by_index("job", uid))
        now = format_time(self._clock.now())
        limit = asyncio.Semaphore(MAX_CREATES_IN_FLIGHT)

        async def perform(effect: jobs.Effect) -> None:
            async with limit:
                await self._perform(key, effect)

        try:
            await asyncio.gather(
                *(perform(effect) for effect in jobs.next_step(job, group, pods, now))
            )
        except KubeError as error:
            log.warning("job %s/%s: %s; trying again", namespace, name, error)
            await self._clock.sleep(RETRY_S)
            self._add(key)

    async def _perform(self, key: Key, effect: jobs.Effect) -> None:
        namespace, name = key
        try:
            match effect:
                case jobs.CreateGroup(body):
                    await self._client.create(PODGROUPS, body)
                case jobs.CreatePod(body):
                    await self._client.create(PODS, body)
                case jobs.SetStatus(status):
                    await self._client.patch_status(JOBS, name, status, namespace=namespace)
        except (AlreadyExists, NotFound):
            pass  # the watch will show it, or the job is gone

    async def _ensure_queues(self) -> None:
        """Volcano's clients expect `root` and `default` to be there, and open."""
        for name in (wellknown.ROOT_QUEUE, wellknown.DEFAULT_QUEUE):
            spec = {"weight": 1, "reclaimable": name != wellknown.ROOT_QUEUE}
            try:
                await self._client.create(QUEUES, {"metadata": {"name": name}, "spec": spec})
                await self._client.patch_status(QUEUES, name, {"state": QueueState.OPEN})
            except AlreadyExists:
                pass


def _job_of_pod(pod: jobs.Object) -> list[str]:
    owners = pod["metadata"].get("ownerReferences") or ()
    return [owner["uid"] for owner in owners if owner["apiVersion"] == wellknown.BATCH_API]

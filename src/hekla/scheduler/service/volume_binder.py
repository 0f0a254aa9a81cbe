"""The volume binder: binds WaitForFirstConsumer claims before their pod is bound.

A claim of such a class is provisioned once its node is chosen: with an annotation if a provisioner
creates the volume, or by reserving a free volume if the class has none. The pod is bound once its
claims are. A provisioner that fails removes the annotation, and the pod is scheduled again.

Note: this may take minutes, so it must not use a slot that other binds need.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from hekla.api import core
from hekla.api.wellknown import SELECTED_NODE
from hekla.kube.client import Client
from hekla.kube.errors import KubeError
from hekla.kube.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from hekla.scheduler.plugins.predicates import volumes
from hekla.scheduler.service.cache import Cache
from hekla.scheduler.state.cluster import Cluster
from hekla.scheduler.state.model import Task

WAIT_S = 600.0
"""The timeout of kube-scheduler."""
BOUND_BY = "pv.kubernetes.io/bound-by-controller"


class NotProvisioned(KubeError):
    """A claim could not be provisioned for the node of its pod."""


@dataclass(frozen=True, slots=True)
class Select:
    """Ask the provisioner for a volume that the node can use."""

    claim: core.PersistentVolumeClaim


@dataclass(frozen=True, slots=True)
class Reserve:
    """Reserve an existing volume for the claim."""

    claim: core.PersistentVolumeClaim
    volume: core.PersistentVolume


def steps(cluster: Cluster, task: Task, node: str, taken: set[str]) -> Iterator[Select | Reserve]:
    """Return the writes before a task can be bound to a node; `taken` volumes are reserved."""
    for name in task.klass.claims:
        claim = cluster.claims.get((task.namespace, name))
        if claim is None or claim.spec.volume_name or not volumes.waits(cluster, claim):
            continue
        volume = volumes.smallest_for(cluster, claim, node, taken)
        if volume is not None:
            yield Reserve(claim, volume)
        elif volumes.is_provisioned(cluster, claim):
            yield Select(claim)
        else:
            raise NotProvisioned(
                f'persistentvolumeclaim "{name}": no volume is left for node {node}'
            )


class VolumeBinder:
    """Binds the claims of tasks, for the performer."""

    def __init__(self, client: Client, cache: Cache) -> None:
        self._client = client
        self._cache = cache
        self._claims = cache.informers[PERSISTENT_VOLUME_CLAIMS.kind]
        self._claims.add_handler(self._on_claim)
        self._news = asyncio.Event()
        self._taken: set[str] = set()

    async def bind_claims(self, task: Task, node: str) -> None:
        """Return when every claim of the task is bound; KubeError if one cannot be."""
        asked: list[core.PersistentVolumeClaim] = []
        reserved: set[str] = set()
        try:
            for step in steps(self._cache.cluster, task, node, self._taken):
                if isinstance(step, Reserve):
                    reserved.add(step.volume.name)
                    self._taken.add(step.volume.name)
                    await self._reserve(step)
                elif step.claim.annotations.get(SELECTED_NODE) != node:
                    await self._select(step.claim, node)
                asked.append(step.claim)
            async with asyncio.timeout(WAIT_S):
                for claim in asked:
                    await self._until_bound(claim, node)
        except TimeoutError:
            raise NotProvisioned(f"volumes for node {node} were not provided in time") from None
        finally:
            self._taken -= reserved

    async def _select(self, claim: core.PersistentVolumeClaim, node: str) -> None:
        note = {"metadata": {"annotations": {SELECTED_NODE: node}}}
        await self._client.patch(
            PERSISTENT_VOLUME_CLAIMS, claim.name, note, namespace=claim.namespace
        )

    async def _reserve(self, step: Reserve) -> None:
        claim, volume = step.claim, step.volume
        reference = {
            "apiVersion": "v1",
            "kind": PERSISTENT_VOLUME_CLAIMS.kind,
            "namespace": claim.namespace,
            "name": claim.name,
            "uid": claim.uid,
        }
        # With the resource version of the decision: another client may reserve it now.
        version = volume.metadata.resource_version
        metadata = {"annotations": {BOUND_BY: "yes"}, "resourceVersion": version}
        patch = {"metadata": metadata, "spec": {"claimRef": reference}}
        await self._client.patch(PERSISTENT_VOLUMES, volume.name, patch)

    async def _until_bound(self, claim: core.PersistentVolumeClaim, node: str) -> None:
        was_asked = False
        while True:
            found = self._claims.get(claim.namespace, claim.name)
            if found is None or found.uid != claim.uid:
                raise NotProvisioned(f'persistentvolumeclaim "{claim.name}" is gone')
            if found.spec.volume_name:
                return
            is_asked = found.annotations.get(SELECTED_NODE) == node
            if was_asked and not is_asked:
                text = f'persistentvolumeclaim "{claim.name}" cannot be provided on node {node}'
                raise NotProvisioned(text)
            was_asked = was_asked or is_asked
            await self._news.wait()

    def _on_claim(self, event: str, old: object, new: object) -> None:
        self._news.set()  # wakes all waiting tasks
        self._news.clear()

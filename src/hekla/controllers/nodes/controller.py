"""The node lifecycle controller: reconciles a node, its lease and its pods; see `lifecycle`."""

from __future__ import annotations

from contextlib import suppress

from hekla.api.wellknown import KUBE_NODE_LEASE, PodPhase, PodReason
from hekla.controllers.informers import NODE, InformerFactory
from hekla.controllers.metrics import Metrics
from hekla.controllers.nodes import lifecycle
from hekla.controllers.nodes.lifecycle import Renewal
from hekla.controllers.objects import Key, key_of, status_of, uid_of
from hekla.controllers.reconciler import Reconciler
from hekla.kube.errors import Conflict, NotFound
from hekla.kube.recorder import EventRecorder
from hekla.kube.resources import LEASES, NODES, PODS
from hekla.units.objects import Object

MARGIN_S = 0.05
"""Timers fire a little after the time that is decided on."""


class NodeLifecycleController(Reconciler):
    """Reconciles nodes by name; a name without a node stands for its orphaned pods."""

    name = "node-lifecycle-controller"
    workers = 4

    def __init__(
        self, informers: InformerFactory, recorder: EventRecorder, metrics: Metrics
    ) -> None:
        super().__init__(informers, recorder, metrics)
        self._nodes = informers.cache(NODES)
        self._pods = informers.cache(PODS)
        self._leases = informers.cache(LEASES)
        self._renewals: dict[str, Renewal] = {}
        """By node, for nodes with a lease."""
        self._missing_since: dict[str, float] = {}
        """By node, for nodes that do not exist but have pods."""
        self._nodes.add_handler(self.enqueue)
        self._leases.add_handler(self._on_lease)
        self._pods.add_handler(self._on_pod)

    def _on_lease(self, _: str, old: Object | None, new: Object | None) -> None:
        lease = new or old
        assert lease is not None
        namespace, name = key_of(lease)
        if namespace != KUBE_NODE_LEASE:
            return
        if new is None:
            self._renewals.pop(name, None)
            return
        version = str((new.get("spec") or {}).get("renewTime"))
        known = self._renewals.get(name)
        if known is None or known.version != version:
            self._renewals[name] = Renewal(version, self.clock.monotonic())
        if known is None:
            self.queue.add(("", name))  # later renewals are read when its timer fires

    def _on_pod(self, _: str, old: Object | None, new: Object | None) -> None:
        """Reconcile the node of a pod that was bound to it, if the node is missing or tainted."""
        node_name = ((new or {}).get("spec") or {}).get("nodeName")
        if not node_name or ((old or {}).get("spec") or {}).get("nodeName") == node_name:
            return
        node = self._nodes.get("", node_name)
        if node is None or lifecycle.evicting_taints(node):
            self.queue.add(("", node_name))

    async def reconcile(self, key: Key) -> float | None:
        node = self._nodes.get(*key)
        if node is None:
            return await self._fail_orphans(key[1])
        self._missing_since.pop(key[1], None)
        lost_in_s = await self._check_lease(node)
        node = self._nodes.get(*key) or node
        taints = lifecycle.wanted_taints(node, self.clock.now())
        if taints is not None:
            version = node["metadata"]["resourceVersion"]
            patch = {"spec": {"taints": taints}}
            node = await self.client.patch(NODES, key[1], patch, expect=version)
            self._nodes.record_write(node)
        waits = [lost_in_s, await self._evict_pods(node)]
        return min((wait_s for wait_s in waits if wait_s is not None), default=None)

    async def _check_lease(self, node: Object) -> float | None:
        """Set the Ready condition of a lost node; else return the seconds until it is lost."""
        name = str(node["metadata"]["name"])
        lease, renewal = self._leases.get(KUBE_NODE_LEASE, name), self._renewals.get(name)
        if lease is None or renewal is None:
            return None
        left_s = lifecycle.lost_at(lease, renewal) - self.clock.monotonic()
        if left_s > 0:
            return left_s + MARGIN_S
        conditions = lifecycle.unknown_conditions(node, self.clock.now())
        if conditions is not None:
            version = node["metadata"]["resourceVersion"]
            status = {"conditions": conditions}
            written = await self.client.patch_status(NODES, name, status, expect=version)
            self._nodes.record_write(written)
            message = f"Node {name} status is now: NodeNotReady"
            self.emit_event(NODES, node, "Normal", "NodeNotReady", message, deduplicate=False)
            for pod in self._pods.by_index(NODE, name):
                await self._set_not_ready(pod)
        return lifecycle.GRACE_S

    async def _set_not_ready(self, pod: Object) -> None:
        conditions = lifecycle.not_ready_conditions(pod, self.clock.now())
        if conditions is not None:
            with suppress(Conflict, NotFound):  # the pod has changed; the node is done once
                await self._write_status(pod, {"conditions": conditions})

    async def _evict_pods(self, node: Object) -> float | None:
        """Delete the pods that do not tolerate the node; return the seconds until the next."""
        taints = lifecycle.evicting_taints(node)
        if not taints:
            return None
        waits = []
        for pod in self._pods.by_index(NODE, node["metadata"]["name"]):
            at = lifecycle.eviction_at(pod, taints)
            if at is None:
                continue
            if at > self.clock.now():
                waits.append(at - self.clock.now() + MARGIN_S)
                continue
            message = "Taint manager: deleting due to NoExecute taint"
            conditions = lifecycle.disrupted(
                pod, "DeletionByTaintManager", message, self.clock.now()
            )
            self.emit_event(PODS, pod, "Normal", "TaintManagerEviction", message)
            await self._delete(pod, {"conditions": conditions}, grace_period_s=None)
        return min(waits, default=None)

    async def _fail_orphans(self, name: str) -> float | None:
        """Fail and delete the pods of a node that has been missing for a while."""
        orphans = [p for p in self._pods.by_index(NODE, name) if lifecycle.is_orphan(p)]
        if not orphans:
            self._missing_since.pop(name, None)
            return None
        since = self._missing_since.setdefault(name, self.clock.monotonic())
        left_s = since + lifecycle.QUARANTINE_S - self.clock.monotonic()
        if left_s > 0:
            return left_s + MARGIN_S
        # The cache may lag: ask the server before a deletion that cannot be undone.
        if await self.client.find(NODES, name) is not None:
            return lifecycle.QUARANTINE_S
        for pod in orphans:
            message = "PodGC: node no longer exists"
            conditions = lifecycle.disrupted(pod, "DeletionByPodGC", message, self.clock.now())
            status = {
                "phase": PodPhase.FAILED,
                "reason": PodReason.NODE_LOST,
                "message": f"node {name} no longer exists",
                "conditions": conditions,
            }
            await self._delete(pod, status, grace_period_s=0)
        self._missing_since.pop(name, None)
        return None

    async def _write_status(self, pod: Object, status: Object) -> None:
        namespace, name = key_of(pod)
        body = {"metadata": {"uid": uid_of(pod)}, "status": status}
        await self.client.patch(PODS, name, body, namespace=namespace, subresource="status")

    async def _delete(self, pod: Object, status: Object, *, grace_period_s: int | None) -> None:
        """Write a status of a pod, then delete it."""
        namespace, name = key_of(pod)
        if status.get("phase") != status_of(pod).get("phase") or grace_period_s is None:
            await self._write_status(pod, status)
        await self.client.delete(
            PODS,
            name,
            namespace=namespace,
            uid=uid_of(pod),
            grace_period_s=grace_period_s,
            missing_ok=True,
        )
        self._pods.record_delete(pod)

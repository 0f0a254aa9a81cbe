"""The controllers of Kubernetes' own workloads. The decisions are in one module per kind."""

from __future__ import annotations

from typing import Any, Final

from hekla.controllers.cronjob.controller import CronJobController
from hekla.controllers.informers import OWNER, InformerFactory
from hekla.controllers.metrics import Metrics
from hekla.controllers.objects import (
    Key,
    controller_of,
    is_controlled_by,
    is_deleting,
    key_of,
    labels_of,
    status_of,
    uid_of,
)
from hekla.controllers.workloads import (
    deployment,
    endpoints,
    job,
    replicaset,
    rollout,
    statefulset,
)
from hekla.controllers.workloads.cronjob import KUBERNETES
from hekla.controllers.workloads.effects import Effect
from hekla.controllers.workloads.job_pods import without_finalizer
from hekla.controllers.workloads.job_tracking import is_tracked
from hekla.controllers.workloads.job_view import JobView
from hekla.controllers.workloads.pods import is_finished, label_selector
from hekla.controllers.workloads.reconciler import WorkloadReconciler
from hekla.kube.recorder import EventRecorder
from hekla.kube.resources import (
    BATCH_JOBS,
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    ENDPOINTS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    SERVICES,
    STATEFUL_SETS,
    Resource,
)
from hekla.units.objects import Object
from hekla.units.selectors import LabelSelector

POD_KEY_PREFIX: Final = "pod/"
"""Marks a key of `BatchJobController` that names a pod; no job has such a name."""
ENDPOINTS_BATCH_PERIOD_S: Final = 0.05
LARGE_SERVICE_BATCH_PERIOD_S: Final = 1.0
LARGE_SERVICE_ADDRESSES: Final = 100


class ReplicaSetController(WorkloadReconciler):
    """Reconciles ReplicaSets."""

    name = "replicaset-controller"
    resource = REPLICA_SETS

    def __init__(
        self, informers: InformerFactory, recorder: EventRecorder, metrics: Metrics
    ) -> None:
        super().__init__(informers, recorder, metrics)
        self.follow(PODS)

    def decide(self, owner: Object) -> list[Effect]:
        return replicaset.next_step(
            replicaset.ReplicaSetView(
                owner,
                self.clock.now(),
                self.owned(PODS, owner),
                self.orphans(PODS, owner),
                self.writer.failures.get(uid_of(owner), ""),
                self.resource,
                self.selector(owner),
            )
        )


class ReplicationControllerController(ReplicaSetController):
    """Reconciles ReplicationControllers, whose selector is a plain map of labels."""

    name = "replicationcontroller-controller"
    resource = REPLICATION_CONTROLLERS

    def selector(self, owner: Object) -> LabelSelector | None:
        return label_selector({"matchLabels": (owner.get("spec") or {}).get("selector")})


class DeploymentController(WorkloadReconciler):
    """Reconciles Deployments."""

    name = "deployment-controller"
    resource = DEPLOYMENTS

    def __init__(
        self, informers: InformerFactory, recorder: EventRecorder, metrics: Metrics
    ) -> None:
        super().__init__(informers, recorder, metrics)
        self.follow(REPLICA_SETS)
        self._pods = informers.cache(PODS)
        self._pods.add_handler(self._on_pod)

    def _on_pod(self, event: str, old: Object | None, new: Object | None) -> None:
        """Reconcile deployments that `Recreate` waits for when a pod has ended."""
        if event != "DELETED" and (new is None or not is_finished(new)):
            return
        pod = new or old
        assert pod is not None
        if deployment.HASH_LABEL not in labels_of(pod):
            return
        for owner in self.owners.all():
            if key_of(owner)[0] == key_of(pod)[0] and not rollout.is_rolling(owner):
                self.queue.add(key_of(owner))

    def decide(self, owner: Object) -> list[Effect]:
        sets = self.owned(REPLICA_SETS, owner)
        pods: dict[str, list[Object]] = {}
        if not rollout.is_rolling(owner):
            pods = {uid_of(each): self._pods.by_index(OWNER, uid_of(each)) for each in sets}
        orphans = self.orphans(REPLICA_SETS, owner)
        view = deployment.DeploymentView(owner, self.clock.now(), sets, orphans, pods)
        return deployment.next_step(view)

    def is_same(self, found: Object, wanted: Object) -> bool:
        return deployment.template_of(found) == deployment.template_of(wanted)

    async def on_name_taken(
        self, owner: Object, kind: Resource[Any], found: Object
    ) -> float | None:
        """Count a hash collision with another template, so that the next try uses another hash."""
        if is_controlled_by(found, uid_of(owner)) and is_deleting(found):
            return 0.05
        collisions = (status_of(owner).get("collisionCount") or 0) + 1
        self.owners.record_write(
            await self.client.patch_status(
                DEPLOYMENTS,
                rollout.name_of(owner),
                {"collisionCount": collisions},
                namespace=key_of(owner)[0],
                expect=str(owner["metadata"]["resourceVersion"]),
            )
        )
        return 0.0


class StatefulSetController(WorkloadReconciler):
    """Reconciles StatefulSets."""

    name = "statefulset-controller"
    resource = STATEFUL_SETS

    def __init__(
        self, informers: InformerFactory, recorder: EventRecorder, metrics: Metrics
    ) -> None:
        super().__init__(informers, recorder, metrics)
        self.follow(PODS)
        self.follow(CONTROLLER_REVISIONS)
        self._claims = informers.cache(PERSISTENT_VOLUME_CLAIMS)

    def decide(self, owner: Object) -> list[Effect]:
        namespace = key_of(owner)[0]
        claims: dict[str, Object] = {}
        if owner["spec"].get("volumeClaimTemplates"):
            claims = {
                key_of(claim)[1]: claim
                for claim in self._claims.all()
                if key_of(claim)[0] == namespace
            }
        return statefulset.next_step(
            statefulset.StatefulSetView(
                owner,
                self.clock.now(),
                self.owned(PODS, owner),
                self.orphans(PODS, owner),
                self.owned(CONTROLLER_REVISIONS, owner),
                claims,
            )
        )

    async def on_name_taken(
        self, owner: Object, kind: Resource[Any], found: Object
    ) -> float | None:
        if is_controlled_by(found, uid_of(owner)):
            return 0.0
        return await super().on_name_taken(owner, kind, found)


class BatchJobController(WorkloadReconciler):
    """Reconciles Kubernetes' Jobs, and pods that have the finalizer but no job."""

    name = "batchjob-controller"
    resource = BATCH_JOBS

    def __init__(
        self, informers: InformerFactory, recorder: EventRecorder, metrics: Metrics
    ) -> None:
        super().__init__(informers, recorder, metrics)
        self._pods = self.follow(PODS)
        self._pods.add_handler(self._on_pod)
        self.owners.add_handler(self._on_job)

    def _on_pod(self, event: str, old: Object | None, new: Object | None) -> None:
        if new is not None and is_tracked(new) and not self._has_job(new):
            self.queue.add((key_of(new)[0], POD_KEY_PREFIX + key_of(new)[1]))

    def _on_job(self, event: str, old: Object | None, new: Object | None) -> None:
        """Reconcile the pods of a deleted job: their finalizer must be removed."""
        if new is None and old is not None:
            for pod in self._pods.by_index(OWNER, uid_of(old)):
                self.queue.add((key_of(pod)[0], POD_KEY_PREFIX + key_of(pod)[1]))

    def _has_job(self, pod: Object) -> bool:
        owner = controller_of(pod)
        if owner is None or not self.is_ours(owner):
            return False
        found = self.owners.get(key_of(pod)[0], owner["name"])
        return found is not None and uid_of(found) == owner.get("uid")

    def decide(self, owner: Object) -> list[Effect]:
        pods, orphans = self.owned(PODS, owner), self.orphans(PODS, owner)
        return job.next_step(JobView(owner, self.clock.now(), pods, orphans))

    async def reconcile(self, key: Key) -> float | None:
        namespace, name = key
        if not name.startswith(POD_KEY_PREFIX):
            return await super().reconcile(key)
        pod = self._pods.get(namespace, name.removeprefix(POD_KEY_PREFIX))
        if pod is None or not is_tracked(pod) or self._has_job(pod):
            return None
        owner = controller_of(pod)
        if owner is not None:  # the cache of jobs may lag behind that of pods
            found = await self.client.find(BATCH_JOBS, owner["name"], namespace=namespace)
            if found is not None and uid_of(found) == owner.get("uid"):
                return None
        return await self.apply_effects(pod, [without_finalizer(pod)])


class BatchCronJobController(CronJobController):
    """Reconciles Kubernetes' CronJobs."""

    name = "batchcronjob-controller"
    kind = KUBERNETES


class EndpointsController(WorkloadReconciler):
    """Reconciles the Endpoints and EndpointSlices of services.

    Changes of pods are batched: a service with a thousand pods changes a thousand times while they
    start.
    """

    name = "endpoints-controller"
    resource = SERVICES

    def __init__(
        self, informers: InformerFactory, recorder: EventRecorder, metrics: Metrics
    ) -> None:
        super().__init__(informers, recorder, metrics)
        self._endpoints = self.follow(ENDPOINTS)
        self.follow(ENDPOINT_SLICES)
        self._pods = informers.cache(PODS)
        self._pods.add_handler(self._on_pod)
        self.owners.add_handler(self._on_service)
        self._selectors: dict[str, dict[str, LabelSelector]] = {}
        """Selectors of services, by namespace and name."""

    def selector(self, owner: Object) -> LabelSelector | None:
        return None  # nothing is adopted

    def _on_service(self, event: str, old: Object | None, new: Object | None) -> None:
        service = new or old
        assert service is not None
        namespace, name = key_of(service)
        selector = endpoints.selector_of(service) if new is not None else None
        if selector is not None:
            self._selectors.setdefault(namespace, {})[name] = selector
        elif namespace in self._selectors:
            self._selectors[namespace].pop(name, None)
            if not self._selectors[namespace]:
                del self._selectors[namespace]

    def _on_pod(self, event: str, old: Object | None, new: Object | None) -> None:
        pod = new or old
        assert pod is not None
        services = self._selectors.get(key_of(pod)[0])
        if not services:
            return
        if old is not None and new is not None and endpoints.is_same_endpoint(old, new):
            return
        for name, selector in services.items():
            if any(each is not None and selector.matches(labels_of(each)) for each in (old, new)):
                self.queue.add_after(
                    (key_of(pod)[0], name), self._batch_period_s(key_of(pod)[0], name)
                )

    def _batch_period_s(self, namespace: str, name: str) -> float:
        known = self._endpoints.get(namespace, name)
        subsets = (known or {}).get("subsets") or ()
        addresses = sum(
            len(e.get("addresses") or ()) + len(e.get("notReadyAddresses") or ()) for e in subsets
        )
        is_large = addresses >= LARGE_SERVICE_ADDRESSES
        return LARGE_SERVICE_BATCH_PERIOD_S if is_large else ENDPOINTS_BATCH_PERIOD_S

    def _selected(self, key: Key) -> list[Object]:
        selector = self._selectors.get(key[0], {}).get(key[1])
        if selector is None:
            return []
        return [
            pod
            for pod in self._pods.all()
            if key_of(pod)[0] == key[0] and selector.matches(labels_of(pod))
        ]

    def decide(self, owner: Object) -> list[Effect]:
        key = key_of(owner)
        slices = self.owned(ENDPOINT_SLICES, owner)
        view = endpoints.ServiceView(owner, self._selected(key), self._endpoints.get(*key), slices)
        return endpoints.next_step(view)

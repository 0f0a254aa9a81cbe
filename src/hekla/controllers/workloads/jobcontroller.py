"""The controller of Kubernetes' own Jobs as a running part."""

from __future__ import annotations

from typing import Final

from hekla.controllers.metrics import Metrics
from hekla.controllers.objects import Key, controller_of, key_of, uid_of
from hekla.controllers.watched import OWNER, World
from hekla.controllers.workloads.base import WorkloadController
from hekla.controllers.workloads.effects import Effect
from hekla.controllers.workloads.job import JobView, next_step, released
from hekla.controllers.workloads.tally import is_tracked
from hekla.kube.recorder import EventRecorder
from hekla.kube.resources import BATCH_JOBS, PODS
from hekla.units.objects import Object

POD: Final = "pod/"
"""Before the name of a pod in a key: no job has such a name."""


class BatchJobController(WorkloadController):
    """Keys are jobs; and pods that carry our finalizer and belong to no job."""

    name = "batchjob-controller"
    resource = BATCH_JOBS

    def __init__(self, world: World, recorder: EventRecorder, metrics: Metrics) -> None:
        super().__init__(world, recorder, metrics)
        self._pods = self.follow(PODS)
        self._pods.add_handler(self._on_pod)
        self.owners.add_handler(self._on_job)

    def _on_pod(self, event: str, old: Object | None, new: Object | None) -> None:
        if new is not None and is_tracked(new) and not self._has_job(new):
            self.queue.add((key_of(new)[0], POD + key_of(new)[1]))

    def _on_job(self, event: str, old: Object | None, new: Object | None) -> None:
        """Pods must not be kept by a finalizer that nobody is left to take away."""
        if new is None and old is not None:
            for pod in self._pods.by_index(OWNER, uid_of(old)):
                self.queue.add((key_of(pod)[0], POD + key_of(pod)[1]))

    def _has_job(self, pod: Object) -> bool:
        owner = controller_of(pod)
        if owner is None or not self.is_ours(owner):
            return False
        job = self.owners.get(key_of(pod)[0], owner["name"])
        return job is not None and uid_of(job) == owner.get("uid")

    def decide(self, owner: Object) -> list[Effect]:
        pods, orphans = self.owned(PODS, owner), self.orphans(PODS, owner)
        return next_step(JobView(owner, self.clock.now(), pods, orphans))

    async def sync(self, key: Key) -> float | None:
        namespace, name = key
        if not name.startswith(POD):
            return await super().sync(key)
        pod = self._pods.get(namespace, name.removeprefix(POD))
        if pod is None or not is_tracked(pod) or self._has_job(pod):
            return None
        owner = controller_of(pod)
        if owner is not None:  # the watch of jobs may be behind that of pods
            job = await self.client.find(BATCH_JOBS, owner["name"], namespace=namespace)
            if job is not None and uid_of(job) == owner.get("uid"):
                return None
        return await self.perform(pod, [released(pod)])

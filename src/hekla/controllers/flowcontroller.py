"""The JobFlow controller as a running part."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from hekla.api import wellknown
from hekla.api.wellknown import FlowPhase, PodPhase
from hekla.controllers import jobflow
from hekla.controllers.job.view import task_of
from hekla.controllers.jobflow import FlowView, Probe
from hekla.controllers.keyed import KeyedController
from hekla.controllers.metrics import Metrics
from hekla.controllers.objects import Key, controller_of, is_deleting, key_of, status_of, uid_of
from hekla.controllers.probing import knock
from hekla.controllers.watched import OWNER, World
from hekla.kube.errors import AlreadyExists
from hekla.kube.recorder import EventRecorder
from hekla.kube.resources import JOB_FLOWS, JOB_TEMPLATES, JOBS, PODS
from hekla.units.objects import Object

Knock = Callable[[Probe, str], Awaitable[bool]]


class JobFlowController(KeyedController):
    name = "jobflow-controller"

    def __init__(self, world: World, recorder: EventRecorder, metrics: Metrics) -> None:
        super().__init__(world, recorder, metrics)
        self._knock: Knock = knock
        self._flows = world.watch(JOB_FLOWS)
        self._jobs = world.watch(JOBS)
        self._templates = world.watch(JOB_TEMPLATES)
        self._pods = world.watch(PODS)
        self._flows.add_handler(self.enqueue)
        self._jobs.add_handler(self._on_job)
        self._templates.add_handler(self._on_template)

    def _on_job(self, event: str, old: Object | None, new: Object | None) -> None:
        job = new or old
        assert job is not None
        owner = controller_of(job)
        if owner is not None and owner.get("apiVersion") == wellknown.FLOW_API:
            self.queue.add((key_of(job)[0], owner["name"]))

    def _on_template(self, event: str, old: Object | None, new: Object | None) -> None:
        if new is None:
            return
        namespace, name = key_of(new)
        for flow in self._flows.all():
            steps = (flow.get("spec") or {}).get("flows") or ()
            if key_of(flow)[0] == namespace and any(step.get("name") == name for step in steps):
                self.queue.add(key_of(flow))

    async def sync(self, key: Key) -> float | None:
        flow = self._flows.get(*key)
        if flow is None or is_deleting(flow):
            return None
        jobs = self._jobs.by_index(OWNER, uid_of(flow))
        templates = {
            step["name"]: template
            for step in flow["spec"].get("flows") or ()
            if (template := self._templates.get(key[0], step["name"])) is not None
        }
        view = FlowView(flow, jobs, templates)
        answers = await self._ask(view)
        wake: float | None = None
        for effect in jobflow.next_step(FlowView(flow, jobs, templates, answers)):
            if isinstance(effect, jobflow.Wake):
                wake = effect.after_s
            else:
                await self._perform(flow, effect)
        return wake

    async def _ask(self, view: FlowView) -> dict[Probe, bool]:
        probes = list(dict.fromkeys(jobflow.all_probes(view)))
        answers = await asyncio.gather(*(self._answers(view, probe) for probe in probes))
        return dict(zip(probes, answers, strict=True))

    async def _answers(self, view: FlowView, probe: Probe) -> bool:
        """Whether every pod of the task is there and answers."""
        job = next(each for each in view.jobs if each["metadata"]["name"] == probe.job)
        pods = [
            pod
            for pod in self._pods.by_index(OWNER, uid_of(job))
            if task_of(pod) == probe.task and status_of(pod).get("phase") == PodPhase.RUNNING
        ]
        addresses = [status_of(pod).get("podIP") for pod in pods]
        if not addresses or not all(addresses):
            return False
        return all(await asyncio.gather(*(self._knock(probe, at) for at in addresses if at)))

    async def _perform(self, flow: Object, effect: jobflow.Effect) -> None:
        namespace, name = key_of(flow)
        match effect:
            case jobflow.CreateJob(body):
                try:
                    self._jobs.wrote(await self.client.create(JOBS, body))
                except AlreadyExists:
                    found = await self.client.get(
                        JOBS, body["metadata"]["name"], namespace=namespace
                    )
                    owner = controller_of(found)
                    if owner is None or owner.get("uid") != uid_of(flow):
                        told = f"job {body['metadata']['name']} exists and is not this flow's"
                        self.tell(JOB_FLOWS, flow, "Warning", "ForeignJob", told)
                        raise
            case jobflow.DeleteJob(job):
                await self.client.delete(
                    JOBS,
                    job["metadata"]["name"],
                    namespace=namespace,
                    uid=uid_of(job),
                    propagation="Background",
                    missing_ok=True,
                )
                self._jobs.deleted(job)
            case jobflow.SetStatus(patch):
                written = await self.client.patch_status(
                    JOB_FLOWS,
                    name,
                    patch,
                    namespace=namespace,
                    expect=flow["metadata"]["resourceVersion"],
                )
                self._flows.wrote(written)
                phase = (patch.get("state") or {}).get("phase")
                if phase in (FlowPhase.SUCCEED, FlowPhase.FAILED):
                    self.metrics.count(
                        f"jobflow_{phase.lower()}_phase_count", jobflow_namespace=namespace
                    )
            case jobflow.Tell(type, reason, message):
                self.tell(JOB_FLOWS, flow, type, reason, message)

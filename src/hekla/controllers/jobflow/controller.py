"""The controller of JobFlows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from hekla.api import wellknown
from hekla.api.wellknown import FlowPhase, FlowReason, PodPhase
from hekla.controllers.informers import OWNER, InformerFactory
from hekla.controllers.job.view import task_of
from hekla.controllers.job_owner import JobOwnerReconciler
from hekla.controllers.jobflow.flow import FlowView, Probe, all_probes, next_step
from hekla.controllers.jobflow.probes import probe_succeeds
from hekla.controllers.metrics import Metrics
from hekla.controllers.objects import Key, controller_of, is_deleting, key_of, status_of, uid_of
from hekla.kube.errors import AlreadyExists
from hekla.kube.recorder import EventRecorder
from hekla.kube.resources import JOB_FLOWS, JOB_TEMPLATES, JOBS, PODS
from hekla.units.objects import Object

ProbeFunction = Callable[[Probe, str], Awaitable[bool]]


class JobFlowController(JobOwnerReconciler):
    """Reconciles JobFlows."""

    name = "jobflow-controller"

    def __init__(
        self, informers: InformerFactory, recorder: EventRecorder, metrics: Metrics
    ) -> None:
        super().__init__(informers, recorder, metrics, owner_resource=JOB_FLOWS, job_resource=JOBS)
        self._probe_succeeds: ProbeFunction = probe_succeeds
        self._templates = informers.cache(JOB_TEMPLATES)
        self._pods = informers.cache(PODS)
        self.jobs.add_handler(self._on_job)
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
        for flow in self.owners.all():
            steps = (flow.get("spec") or {}).get("flows") or ()
            if key_of(flow)[0] == namespace and any(step.get("name") == name for step in steps):
                self.queue.add(key_of(flow))

    async def reconcile(self, key: Key) -> float | None:
        flow = self.owners.get(*key)
        if flow is None or is_deleting(flow):
            return None
        jobs = self.jobs.by_index(OWNER, uid_of(flow))
        templates = {
            step["name"]: template
            for step in flow["spec"].get("flows") or ()
            if (template := self._templates.get(key[0], step["name"])) is not None
        }
        results = await self._run_probes(FlowView(flow, jobs, templates))
        view = FlowView(flow, jobs, templates, results)
        return await self.apply_effects(flow, next_step(view))

    async def _run_probes(self, view: FlowView) -> dict[Probe, bool]:
        probes = list(dict.fromkeys(all_probes(view)))
        results = await asyncio.gather(*(self._run_probe(view, probe) for probe in probes))
        return dict(zip(probes, results, strict=True))

    async def _run_probe(self, view: FlowView, probe: Probe) -> bool:
        """Return whether every pod of the task runs and the probe succeeds at each."""
        job = next(each for each in view.jobs if each["metadata"]["name"] == probe.job)
        pods = [
            pod
            for pod in self._pods.by_index(OWNER, uid_of(job))
            if task_of(pod) == probe.task and status_of(pod).get("phase") == PodPhase.RUNNING
        ]
        addresses = [status_of(pod).get("podIP") for pod in pods]
        if not addresses or not all(addresses):
            return False
        return all(
            await asyncio.gather(*(self._probe_succeeds(probe, at) for at in addresses if at))
        )

    def on_foreign_job(self, owner: Object, name: str, error: AlreadyExists) -> None:
        message = f"job {name} exists and is not owned by this JobFlow"
        self.emit_event(JOB_FLOWS, owner, "Warning", FlowReason.FOREIGN_JOB, message)
        raise error

    def on_status_set(self, owner: Object, patch: Object) -> None:
        phase = (patch.get("state") or {}).get("phase")
        if phase in (FlowPhase.SUCCEED, FlowPhase.FAILED):
            self.metrics.count(
                f"jobflow_{phase.lower()}_phase_count", jobflow_namespace=key_of(owner)[0]
            )

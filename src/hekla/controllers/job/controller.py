"""The controller of Volcano's Jobs.

One worker reconciles a job at a time, and several jobs at once; the parallel writes of pods are
bounded over all jobs together.

Note: every write that carries a decision names the resourceVersion that the decision was made on. A
conflict is no error: the job has changed and is reconciled again.
"""

from __future__ import annotations

from typing import Final

from hekla.api.wellknown import JobPhase, JobReason
from hekla.controllers.effects import EmitEvent
from hekla.controllers.informers import OWNER, TARGET, InformerFactory, is_volcano_job_ref
from hekla.controllers.job.pods import group_name, queue_of
from hekla.controllers.job.sync import next_step
from hekla.controllers.job.view import JobView
from hekla.controllers.job.writer import JobWriter, WriterContext
from hekla.controllers.metrics import Metrics
from hekla.controllers.objects import (
    Key,
    controller_of,
    is_controlled_by,
    is_deleting,
    job_phase,
    key_of,
    uid_of,
)
from hekla.controllers.reconciler import Reconciler
from hekla.kube.recorder import EventRecorder
from hekla.kube.resources import (
    COMMANDS,
    JOBS,
    PERSISTENT_VOLUME_CLAIMS,
    PODGROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
)
from hekla.units.objects import Object

COUNTS_BATCH_PERIOD_S: Final = 0.1


class JobController(Reconciler):
    """Reconciles Volcano's Jobs."""

    name = "job-controller"
    workers = 32

    def __init__(
        self,
        informers: InformerFactory,
        recorder: EventRecorder,
        metrics: Metrics,
        *,
        counts_batch_period_s: float = COUNTS_BATCH_PERIOD_S,
    ) -> None:
        """Write changes of mere counts once per `counts_batch_period_s`."""
        super().__init__(informers, recorder, metrics)
        self._jobs = informers.cache(JOBS)
        self._pods = informers.cache(PODS)
        self._groups = informers.cache(PODGROUPS)
        self._queues = informers.cache(QUEUES)
        self._priorities = informers.cache(PRIORITY_CLASSES)
        self._commands = informers.cache(COMMANDS)
        self._context = WriterContext(
            client=informers.client,
            clock=informers.clock,
            metrics=metrics,
            jobs=self._jobs,
            pods=self._pods,
            groups=self._groups,
            commands=self._commands,
            emit_event=self._emit,
            counts_batch_period_s=counts_batch_period_s,
        )
        self._jobs.add_handler(self._on_job)
        for cache in (self._pods, self._groups):
            cache.add_handler(self._on_owned)
        self._commands.add_handler(self._on_command)

    def _on_job(self, event: str, old: Object | None, new: Object | None) -> None:
        job = new or old
        assert job is not None
        if event == "DELETED":
            self._context.forget(uid_of(job))
        self.queue.add(key_of(job))

    def _on_owned(self, event: str, old: Object | None, new: Object | None) -> None:
        obj = new or old
        assert obj is not None
        owner = controller_of(obj)
        if owner is not None and is_volcano_job_ref(owner):
            self.queue.add((key_of(obj)[0], owner["name"]))

    def _on_command(self, event: str, old: Object | None, new: Object | None) -> None:
        command = new or old
        assert command is not None
        target = command.get("target") or {}
        if is_volcano_job_ref(target):
            self.queue.add((key_of(command)[0], target["name"]))

    async def reconcile(self, key: Key) -> float | None:
        job = self._jobs.get(*key)
        if job is None or is_deleting(job):
            return None
        view = await self._view(job)
        try:
            effects = next_step(view)
        except ValueError as error:  # a plugin that does not support this job
            self._emit(job, EmitEvent("Warning", JobReason.PLUGIN_ERROR, str(error)))
            raise
        return await JobWriter(self._context, job).apply(effects)

    def count_conflict(self) -> None:
        self.metrics.count("job_sync_conflicts")

    def count_error(self) -> None:
        self.metrics.count("job_sync_errors")

    async def _view(self, job: Object) -> JobView:
        namespace, name = key_of(job)
        uid = uid_of(job)
        group = self._groups.get(namespace, group_name(job))
        if group is None:
            # The PodGroup of a job from before Volcano 1.5 has the name of the job.
            group = self._groups.get(namespace, name)
            if group is not None and not is_controlled_by(group, uid):
                group = None
        return JobView(
            job=job,
            now=self.clock.now(),
            group=group,
            pods=sorted(self._pods.by_index(OWNER, uid), key=key_of),
            commands=[
                command
                for command in self._commands.by_index(TARGET, f"Job/{namespace}/{name}")
                if is_volcano_job_ref(command["target"]) and command["target"].get("uid") == uid
            ],
            queue=self._queues.get("", queue_of(job)),
            claims=await self._claims(job),
            priorities={
                each["metadata"]["name"]: int(each.get("value") or 0)
                for each in self._priorities.all()
            },
            ensured=self._context.ensured.get(uid, ""),
        )

    async def _claims(self, job: Object) -> dict[str, bool]:
        """Return whether the claims that a pending job names exist.

        They are read from the server: few jobs name claims, so no informer is kept.
        """
        if job_phase(job) not in ("", JobPhase.PENDING):
            return {}
        found: dict[str, bool] = {}
        for volume in job["spec"].get("volumes") or ():
            name = volume.get("volumeClaimName")
            if name and not volume.get("volumeClaim"):
                claim = await self.client.find(
                    PERSISTENT_VOLUME_CLAIMS, name, namespace=key_of(job)[0]
                )
                found[name] = claim is not None
        return found

    def _emit(self, job: Object, event: EmitEvent) -> None:
        self.emit_event(JOBS, job, event.type, event.reason, event.message)

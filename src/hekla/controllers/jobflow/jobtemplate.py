"""The controller of JobTemplates, which lists the jobs created from each."""

from __future__ import annotations

from hekla.api import wellknown
from hekla.controllers.informers import TEMPLATE, InformerFactory
from hekla.controllers.metrics import Metrics
from hekla.controllers.objects import Key, annotations_of, is_deleting, status_of
from hekla.controllers.reconciler import Reconciler
from hekla.kube.recorder import EventRecorder
from hekla.kube.resources import JOB_TEMPLATES, JOBS
from hekla.units.objects import Object


class JobTemplateController(Reconciler):
    """Maintains `status.jobDependsOnList`.

    Unlike Volcano's, the list shrinks, and names may have dots.
    """

    name = "jobtemplate-controller"
    workers = 1

    def __init__(
        self, informers: InformerFactory, recorder: EventRecorder, metrics: Metrics
    ) -> None:
        super().__init__(informers, recorder, metrics)
        self._templates = informers.cache(JOB_TEMPLATES)
        self._jobs = informers.cache(JOBS)
        self._templates.add_handler(self.enqueue)
        self._jobs.add_handler(self._on_job)

    def _on_job(self, event: str, old: Object | None, new: Object | None) -> None:
        if event == "MODIFIED":
            return
        job = new or old
        assert job is not None
        mark = annotations_of(job).get(wellknown.CREATED_BY_JOB_TEMPLATE, "")
        namespace = job["metadata"]["namespace"]
        if mark.startswith(f"{namespace}."):
            self.queue.add((namespace, mark.removeprefix(f"{namespace}.")))

    async def reconcile(self, key: Key) -> float | None:
        template = self._templates.get(*key)
        if template is None or is_deleting(template):
            return None
        jobs = self._jobs.by_index(TEMPLATE, f"{key[0]}.{key[1]}")
        names = sorted(job["metadata"]["name"] for job in jobs)
        if names != (status_of(template).get("jobDependsOnList") or []):
            written = await self.client.patch_status(
                JOB_TEMPLATES, key[1], {"jobDependsOnList": names}, namespace=key[0]
            )
            self._templates.record_write(written)
        return None

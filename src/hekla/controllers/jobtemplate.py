"""JobTemplates list the jobs that were made from them."""

from __future__ import annotations

from hekla.api import wellknown
from hekla.controllers.keyed import KeyedController
from hekla.controllers.metrics import Metrics
from hekla.controllers.objects import Key, annotations_of, is_deleting, status_of
from hekla.controllers.watched import World
from hekla.kube.recorder import EventRecorder
from hekla.kube.resources import JOB_TEMPLATES, JOBS
from hekla.units.objects import Object


class JobTemplateController(KeyedController):
    """Keeps status.jobDependsOnList; it shrinks too, and names with dots work."""

    name = "jobtemplate-controller"
    workers = 1

    def __init__(self, world: World, recorder: EventRecorder, metrics: Metrics) -> None:
        super().__init__(world, recorder, metrics)
        self._templates = world.watch(JOB_TEMPLATES)
        self._jobs = world.watch(JOBS)
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

    async def sync(self, key: Key) -> float | None:
        template = self._templates.get(*key)
        if template is None or is_deleting(template):
            return None
        made = self._jobs.by_index("template", f"{key[0]}.{key[1]}")
        names = sorted(job["metadata"]["name"] for job in made)
        if names != (status_of(template).get("jobDependsOnList") or []):
            written = await self.client.patch_status(
                JOB_TEMPLATES, key[1], {"jobDependsOnList": names}, namespace=key[0]
            )
            self._templates.wrote(written)
        return None

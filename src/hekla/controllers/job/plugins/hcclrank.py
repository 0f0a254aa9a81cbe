"""hcclrank: the rank of a pod among Ascend devices, as an annotation."""

from __future__ import annotations

from hekla.api import wellknown
from hekla.controllers.job.plugins.plugin import JobPlugin, PodContext, containers, replicas_of
from hekla.units.objects import Object


class HcclRank(JobPlugin, name="hcclrank"):
    """Annotates pods with their rank."""

    is_tracked = False
    order = 10  # after the plugins that set RANK

    master: str = "master"
    worker: str = "worker"

    def on_pod(self, pod: Object, context: PodContext) -> None:
        annotations = pod["metadata"].setdefault("annotations", {})
        if annotations.get(wellknown.HCCL_RANK_INDEX):
            return
        rank = _rank_in_env(pod)
        if rank is None and context.task["name"] == self.master:
            rank = str(context.index)
        if rank is None and context.task["name"] == self.worker:
            rank = str(replicas_of(context.job, self.master) + context.index)
        if rank is not None:
            annotations[wellknown.HCCL_RANK_INDEX] = rank


def _rank_in_env(pod: Object) -> str | None:
    for container in containers(pod):
        for item in container.get("env") or ():
            if item["name"] == wellknown.ENV_RANK and item.get("value"):
                return str(item["value"])
    return None

"""env: every container gets its pod's index in the task."""

from __future__ import annotations

from hekla.api import wellknown
from hekla.controllers.job.plugins.plugin import JobPlugin, PodContext, containers, set_env
from hekla.units.objects import Object


class Env(JobPlugin, name="env"):
    """Sets VC_TASK_INDEX, and the older VK_TASK_INDEX."""

    def on_pod(self, pod: Object, context: PodContext) -> None:
        index = str(context.index)
        values: dict[str, str | Object] = {
            wellknown.ENV_VK_TASK_INDEX: index,
            wellknown.ENV_VC_TASK_INDEX: index,
        }
        set_env(containers(pod, init=True), values)

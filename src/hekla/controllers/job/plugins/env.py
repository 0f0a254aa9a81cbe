"""env: every container knows its pod's place in the task."""

from __future__ import annotations

from hekla.api import wellknown
from hekla.controllers.job.plugins.plugin import JobPlugin, Place, containers, set_env
from hekla.units.objects import Object


class Env(JobPlugin, name="env"):
    """VC_TASK_INDEX, and VK_TASK_INDEX for programs of an older time."""

    def on_pod(self, pod: Object, place: Place) -> None:
        index = str(place.index)
        values: dict[str, str | Object] = {
            wellknown.ENV_VK_TASK_INDEX: index,
            wellknown.ENV_VC_TASK_INDEX: index,
        }
        set_env(containers(pod, init=True), values)

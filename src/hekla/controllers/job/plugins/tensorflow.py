"""tensorflow: TF_CONFIG, from which TensorFlow's strategies learn the whole cluster."""

from __future__ import annotations

import json

from hekla.api import wellknown
from hekla.controllers.job.plugins.addresses import addresses
from hekla.controllers.job.plugins.plugin import JobPlugin, Place, containers, set_env, task_named
from hekla.units.objects import Object


class TensorFlow(JobPlugin, name="tensorflow"):
    ps: str = "ps"
    worker: str = "worker"
    chief: str = "chief"
    evaluator: str = "evaluator"
    port: int = 2222

    def on_pod(self, pod: Object, place: Place) -> None:
        tasks = place.job["spec"].get("tasks") or []
        if len(tasks) == 1 and tasks[0].get("replicas") == 1:
            return  # alone: without TF_CONFIG TensorFlow does not look for others
        roles = {
            "ps": self.ps,
            "worker": self.worker,
            "chief": self.chief,
            "evaluator": self.evaluator,
        }
        mine = next((role for role, task in roles.items() if task == place.task["name"]), None)
        if mine is None:
            return
        cluster = {
            role: [f"{found}:{self.port}" for found in addresses(place.job, task)]
            for role, name in roles.items()
            if (task := task_named(place.job, name)) is not None
        }
        config = {"cluster": cluster, "task": {"type": mine, "index": place.index}}
        set_env(containers(pod), {wellknown.ENV_TF_CONFIG: json.dumps(config)})

"""tensorflow: TF_CONFIG, which describes the whole cluster to TensorFlow's strategies."""

from __future__ import annotations

import json

from hekla.api import wellknown
from hekla.controllers.job.plugins.addresses import addresses
from hekla.controllers.job.plugins.plugin import (
    JobPlugin,
    PodContext,
    containers,
    set_env,
    task_named,
)
from hekla.units.objects import Object


class TensorFlow(JobPlugin, name="tensorflow"):
    """Sets TF_CONFIG."""

    ps: str = "ps"
    worker: str = "worker"
    chief: str = "chief"
    evaluator: str = "evaluator"
    port: int = 2222

    def on_pod(self, pod: Object, context: PodContext) -> None:
        tasks = context.job["spec"].get("tasks") or []
        if len(tasks) == 1 and tasks[0].get("replicas") == 1:
            return  # a single pod needs no TF_CONFIG
        roles = {
            "ps": self.ps,
            "worker": self.worker,
            "chief": self.chief,
            "evaluator": self.evaluator,
        }
        own_role = next(
            (role for role, task in roles.items() if task == context.task["name"]), None
        )
        if own_role is None:
            return
        cluster = {
            role: [f"{found}:{self.port}" for found in addresses(context.job, task)]
            for role, name in roles.items()
            if (task := task_named(context.job, name)) is not None
        }
        config = {"cluster": cluster, "task": {"type": own_role, "index": context.index}}
        set_env(containers(pod), {wellknown.ENV_TF_CONFIG: json.dumps(config)})

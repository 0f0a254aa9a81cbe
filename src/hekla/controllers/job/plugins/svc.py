"""svc: the pods of a job reach each other by name, and get a list of the names.

A headless Service gives every pod `<pod>.<job>`; a ConfigMap lists all hosts, as files under
/etc/volcano and as variables; a NetworkPolicy, unless disabled, blocks other pods.
"""

from __future__ import annotations

from hekla.api import wellknown
from hekla.controllers.job.plugins.addresses import addresses
from hekla.controllers.job.plugins.plugin import (
    JobPlugin,
    ManagedObject,
    PodContext,
    containers,
    mount,
    object_meta,
    set_env,
)
from hekla.kube.resources import CONFIGMAPS, NETWORK_POLICIES, SERVICES
from hekla.units.objects import Object


def hosts_name(job: Object) -> str:
    return f"{job['metadata']['name']}-svc"


def _variables(task: Object) -> tuple[str, str]:
    name = task.get("name", "").replace("-", "_").upper()
    return wellknown.ENV_TASK_HOSTS.format(task=name), wellknown.ENV_TASK_NUM.format(task=name)


def hosts(job: Object) -> dict[str, str]:
    """Return the content of the ConfigMap: a host file and two variables per task."""
    data: dict[str, str] = {}
    for task in job["spec"].get("tasks") or ():
        name, found = task.get("name", "").replace("-", "_"), addresses(job, task)
        data[f"{name}.host"] = "\n".join(found)
        all_hosts, number = _variables(task)
        data[all_hosts] = ",".join(found)
        data[number] = str(len(found))
    return data


class Svc(JobPlugin, name="svc"):
    """Sets host names, and requests a Service, a ConfigMap and a NetworkPolicy."""

    publish_not_ready_addresses: bool = False
    disable_network_policy: bool = False
    inject_hosts_env: bool = True

    def on_pod(self, pod: Object, context: PodContext) -> None:
        spec, job = pod["spec"], context.job
        spec["hostname"] = spec.get("hostname") or pod["metadata"]["name"]
        spec["subdomain"] = spec.get("subdomain") or job["metadata"]["name"]
        name = hosts_name(job)
        if self.inject_hosts_env:
            values: dict[str, str | Object] = {
                key: {"configMapKeyRef": {"name": name, "key": key}}
                for task in job["spec"].get("tasks") or ()
                for key in _variables(task)
            }
            set_env(containers(pod, init=True), values)
        mount(
            pod,
            {"name": name, "configMap": {"name": name}},
            {"mountPath": wellknown.HOSTS_PATH},
        )

    def objects(self, job: Object) -> list[ManagedObject]:
        name = job["metadata"]["name"]
        members = {
            wellknown.JOB_NAME: name,
            wellknown.JOB_NAMESPACE: job["metadata"]["namespace"],
        }
        wanted = [
            ManagedObject(
                CONFIGMAPS, {"metadata": object_meta(job, hosts_name(job)), "data": hosts(job)}
            ),
            ManagedObject(
                SERVICES,
                {
                    "metadata": object_meta(job, name),
                    "spec": {
                        "clusterIP": "None",
                        "selector": members,
                        "publishNotReadyAddresses": self.publish_not_ready_addresses,
                    },
                },
            ),
        ]
        if not self.disable_network_policy:
            selector = {"matchLabels": members}
            policy = {
                "podSelector": selector,
                "ingress": [{"from": [{"podSelector": selector}]}],
                "policyTypes": ["Ingress"],
            }
            wanted.append(
                ManagedObject(
                    NETWORK_POLICIES, {"metadata": object_meta(job, name), "spec": policy}
                )
            )
        return wanted

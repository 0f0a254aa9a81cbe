"""Create a Volcano Job with the official client and watch it until it completes.

Runs in the Python environment of the clients, with KUBECONFIG. Argument: the namespace. Prints
one phase per line.
"""

import sys
from typing import Any

from kubernetes import client, config, watch

NAMESPACE = sys.argv[1]
KIND: dict[str, Any] = {"group": "batch.volcano.sh", "version": "v1alpha1", "plural": "jobs"}
JOB: dict[str, Any] = {
    "apiVersion": "batch.volcano.sh/v1alpha1",
    "kind": "Job",
    "metadata": {"name": "watched"},
    "spec": {
        "minAvailable": 2,
        "schedulerName": "volcano",
        "tasks": [
            {
                "name": "worker",
                "replicas": 2,
                "template": {
                    "spec": {
                        "restartPolicy": "Never",
                        "containers": [{"name": "main", "image": "none"}],
                    }
                },
            }
        ],
    },
}

config.load_kube_config()
custom, core = client.CustomObjectsApi(), client.CoreV1Api()
before: Any = custom.list_namespaced_custom_object(namespace=NAMESPACE, **KIND)
custom.create_namespaced_custom_object(namespace=NAMESPACE, body=JOB, **KIND)


def wait_for_job(version: str, wanted: str) -> str:
    """Watch the job from a resource version; return the version at which it has the phase."""
    watcher = watch.Watch()
    for event in watcher.stream(
        custom.list_namespaced_custom_object,
        namespace=NAMESPACE,
        resource_version=version,
        timeout_seconds=280,
        **KIND,
    ):
        version = event["object"]["metadata"]["resourceVersion"]
        phase = ((event["object"].get("status") or {}).get("state") or {}).get("phase")
        print(event["type"], phase, flush=True)
        if phase == wanted:
            watcher.stop()
            return version
    raise SystemExit(f"the job was never {wanted}")


running_at = wait_for_job(before["metadata"]["resourceVersion"], "Running")
finish = {"metadata": {"annotations": {"hekla.test/finish": "Succeeded"}}}
pods: Any = core.list_namespaced_pod(NAMESPACE)
for pod in pods.items:
    core.patch_namespaced_pod(pod.metadata.name, NAMESPACE, finish)
wait_for_job(running_at, "Completed")

ended = watch.Watch()
names = set()
for event in ended.stream(core.list_namespaced_pod, NAMESPACE, timeout_seconds=280):
    if event["object"].status.phase == "Succeeded":
        names.add(event["object"].metadata.name)
    if len(names) == 2:
        ended.stop()
print("pods", *sorted(names))

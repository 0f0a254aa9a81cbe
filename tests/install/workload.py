"""A workload that needs every permission of the components."""

from __future__ import annotations

from typing import Any

import pytest
from tools.waiting import until

from hekla.api import wellknown
from hekla.api.wellknown import SELECTED_NODE
from hekla.kube.errors import KubeError
from hekla.kube.resources import (
    COMMANDS,
    CONFIGMAPS,
    CRON_JOBS,
    DEPLOYMENTS,
    JOB_FLOWS,
    JOB_TEMPLATES,
    JOBS,
    NETWORK_POLICIES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODGROUPS,
    PRIORITY_CLASSES,
    QUEUES,
    SECRETS,
    SERVICES,
    STORAGE_CLASSES,
)
from hekla.kube.sync_client import SyncClient
from hekla.scheduler.plugins.predicates.volumes import NO_PROVISIONER
from hekla.units.objects import Object
from tests.realkube.backends import finish
from tests.realkube.test_jobs import job, phase, pods

PREEMPTING = """\
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers:
- plugins: [{name: priority}, {name: gang, enablePreemptable: false}, {name: conformance}]
- plugins: [{name: predicates}, {name: proportion}, {name: nodeorder}]
"""


def _reference(obj: Object) -> Object:
    return {"name": obj["metadata"]["name"], "uid": obj["metadata"]["uid"], "controller": True}


def _volume(name: str, made_of: str, claimed_in: str = "") -> Object:
    """A volume; `claimed_in`: for the claim named like its class in that namespace."""
    spec: Object = {
        "capacity": {"storage": "2Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": made_of,
        "hostPath": {"path": "/tmp"},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    if claimed_in:
        claim = {"kind": "PersistentVolumeClaim", "name": made_of, "namespace": claimed_in}
        spec["claimRef"] = {"apiVersion": "v1", **claim}
    return {"metadata": {"name": name}, "spec": spec}


class Workload:
    """Each method is one user workflow, from beginning to end."""

    def __init__(self, client: SyncClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    def run_all(self) -> None:
        self.begin_a_schedule()
        self.a_bad_job_is_refused()
        self.a_job_with_plugins_and_a_volume()
        self.jobs_whose_volumes_wait_for_them()
        self.a_job_is_aborted()
        self.a_job_that_fails_once()
        self.a_queue_is_closed_and_opened()
        self.a_flow()
        self.a_deployment()
        self.an_urgent_job_takes_room()
        self.a_job_behind_the_queue_allocation_gate()
        self.the_schedule_has_started_a_job()

    def _make(self, kind: Any, body: Object) -> Object:
        made: Object = self._client.create(kind, body, namespace=self._namespace)
        return made

    def _gone(self, kind: Any, name: str) -> None:
        until(lambda: self._client.find(kind, name, namespace=self._namespace) is None)

    def _job(self, name: str) -> Object:
        return self._client.get(JOBS, name, namespace=self._namespace)

    def _runs(self, name: str) -> None:
        until(lambda: self._client.find(JOBS, name, namespace=self._namespace))
        until(lambda: phase(self._client, self._namespace, name) == "Running")

    def _finish(self, name: str, count: int) -> None:
        for number in range(count):
            finish(self._client, self._namespace, f"{name}-worker-{number}")

    def begin_a_schedule(self) -> None:
        spec = {
            "schedule": "* * * * *",
            "successfulJobsHistoryLimit": 0,
            "jobTemplate": {"spec": job("tick", replicas=1, cpu="100m")["spec"]},
        }
        self._make(CRON_JOBS, {"metadata": {"name": "tick"}, "spec": spec})

    def the_schedule_has_started_a_job(self) -> None:
        def started() -> list[str]:
            jobs = self._client.list(JOBS, namespace=self._namespace).items
            return [j["metadata"]["name"] for j in jobs if j["metadata"]["name"].startswith("tick")]

        name, *_ = until(started)
        self._runs(name)
        self._finish(name, 1)
        self._gone(JOBS, name)  # no history is kept

    def a_bad_job_is_refused(self) -> None:
        with pytest.raises(KubeError, match="no-such-queue"):
            self._make(JOBS, job("lost", queue="no-such-queue"))

    def a_job_with_plugins_and_a_volume(self) -> None:
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        body = job(
            "mpi",
            plugins={"env": [], "svc": [], "ssh": []},
            volumes=[{"mountPath": "/data", "volumeClaim": claim}],
            ttlSecondsAfterFinished=0,
        )
        self._make(JOBS, body)
        claims = until(lambda: self._claims())
        self._bind_volume(claims[0])
        self._runs("mpi")
        self._spoil_what_plugins_made()
        grown = {
            "spec": {"tasks": [{**body["spec"]["tasks"][0], "replicas": 3}], "minAvailable": 3}
        }
        self._client.patch(JOBS, "mpi", grown, namespace=self._namespace)
        until(lambda: len(pods(self._client, self._namespace)) == 3)
        until(self._are_as_they_were)
        self._runs("mpi")
        self._finish("mpi", 3)
        self._gone(JOBS, "mpi")
        for kind, name in ((SERVICES, "mpi"), (CONFIGMAPS, "mpi-svc"), (NETWORK_POLICIES, "mpi")):
            self._gone(kind, name)

    def a_job_is_aborted(self) -> None:
        """The job uses an existing claim; objects of its plugins are deleted with it."""
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        claim = self._make(PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": "old"}, "spec": spec})
        self._bind_volume(claim)
        volumes = [{"mountPath": "/data", "volumeClaimName": "old"}]
        plugins: Object = {"svc": [], "ssh": []}
        body = self._make(JOBS, job("brief", plugins=plugins, volumes=volumes))
        self._runs("brief")
        target = {**_reference(body), "kind": "Job", "apiVersion": wellknown.BATCH_API}
        command = {"metadata": {"generateName": "c-"}, "action": "AbortJob", "target": target}
        self._make(COMMANDS, command)
        until(lambda: phase(self._client, self._namespace, "brief") == "Aborted")
        for kind, name in ((SERVICES, "brief"), (CONFIGMAPS, "brief-svc")):
            self._gone(kind, name)

    def jobs_whose_volumes_wait_for_them(self) -> None:
        """One pod gets an existing volume, the other one a volume provisioned for its node."""
        for name, provisioner in (("local", NO_PROVISIONER), ("cloud", "example.com/disks")):
            body = {
                "metadata": {"name": name},
                "provisioner": provisioner,
                "volumeBindingMode": "WaitForFirstConsumer",
            }
            self._client.create(STORAGE_CLASSES, body)
            spec = {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
                "storageClassName": name,
            }
            self._make(PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": name}, "spec": spec})
        self._client.create(PERSISTENT_VOLUMES, _volume("disk", "local"))
        for name in ("local", "cloud"):
            volumes = [{"mountPath": "/data", "volumeClaimName": name}]
            self._make(JOBS, job(f"on-{name}", volumes=volumes, replicas=1))
        self._runs("on-local")
        claim = self._client.get(PERSISTENT_VOLUME_CLAIMS, "local", namespace=self._namespace)
        assert claim["spec"]["volumeName"] == "disk"
        until(lambda: SELECTED_NODE in self._annotations("cloud"))
        self._client.create(PERSISTENT_VOLUMES, _volume("made", "cloud", self._namespace))
        self._runs("on-cloud")
        for name in ("local", "cloud"):
            self._finish(f"on-{name}", 1)

    def _annotations(self, claim: str) -> Object:
        found = self._client.get(PERSISTENT_VOLUME_CLAIMS, claim, namespace=self._namespace)
        return found["metadata"].get("annotations") or {}

    def _claims(self) -> list[Object]:
        return self._client.list(PERSISTENT_VOLUME_CLAIMS, namespace=self._namespace).items

    def _bind_volume(self, claim: Object) -> None:
        """Act as a provisioner."""
        reference = {"name": claim["metadata"]["name"], "namespace": self._namespace}
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **reference},
            "hostPath": {"path": "/tmp"},
            "persistentVolumeReclaimPolicy": "Delete",
        }
        name = f"for-{claim['metadata']['name']}"
        body = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}}
        self._client.request("POST", "/api/v1/persistentvolumes", body={**body, "spec": spec})

    def _ssh_secret(self) -> Object:
        found = self._client.list(SECRETS, namespace=self._namespace).items
        (secret,) = (each for each in found if "ssh" in each["metadata"]["name"])
        return secret

    def _spoil_what_plugins_made(self) -> None:
        """A user edits an object of the job: it is restored when the job changes."""
        patch = self._client.patch
        space = self._namespace
        patch(SERVICES, "mpi", {"spec": {"publishNotReadyAddresses": True}}, namespace=space)
        patch(NETWORK_POLICIES, "mpi", {"spec": {"policyTypes": ["Egress"]}}, namespace=space)
        secret = self._ssh_secret()
        patch(SECRETS, secret["metadata"]["name"], {"data": {"config": None}}, namespace=space)

    def _are_as_they_were(self) -> bool:
        space = self._namespace
        policy = self._client.get(NETWORK_POLICIES, "mpi", namespace=space)["spec"]
        service = self._client.get(SERVICES, "mpi", namespace=space)["spec"]
        put_right = not service.get("publishNotReadyAddresses")
        return (
            put_right
            and policy["policyTypes"] == ["Ingress"]
            and "config" in self._ssh_secret()["data"]
        )

    def a_job_that_fails_once(self) -> None:
        policies = [{"event": "PodFailed", "action": "RestartJob"}]
        self._make(JOBS, job("again", policies=policies, maxRetry=3))
        self._runs("again")
        finish(self._client, self._namespace, "again-worker-1", "Failed")
        get = self._client.get
        until(
            lambda: get(JOBS, "again", namespace=self._namespace)["status"].get("retryCount") == 1
        )
        self._runs("again")
        self._finish("again", 2)
        until(lambda: phase(self._client, self._namespace, "again") == "Completed")

    def a_queue_is_closed_and_opened(self) -> None:
        self._client.create(QUEUES, {"metadata": {"name": "side"}, "spec": {"weight": 1}})
        until(lambda: self._state("side") == "Open")
        for action, state in (("CloseQueue", "Closed"), ("OpenQueue", "Open")):
            target = {**_reference(self._client.get(QUEUES, "side")), "kind": "Queue"}
            target["apiVersion"] = wellknown.SCHEDULING_API
            self._make(
                COMMANDS, {"metadata": {"generateName": "c-"}, "action": action, "target": target}
            )
            until(lambda state=state: self._state("side") == state)  # type: ignore[misc]
        self._client.delete(QUEUES, "side")

    def _state(self, queue: str) -> str:
        return str((self._client.get(QUEUES, queue).get("status") or {}).get("state", ""))

    def a_flow(self) -> None:
        for name in ("first", "second"):
            template = {"metadata": {"name": name}, "spec": job(name, replicas=1)["spec"]}
            self._make(JOB_TEMPLATES, template)
        steps = [{"name": "first"}, {"name": "second", "dependsOn": {"targets": ["first"]}}]
        spec = {"flows": steps, "jobRetainPolicy": "delete"}
        self._make(JOB_FLOWS, {"metadata": {"name": "flow"}, "spec": spec})
        for name in ("flow-first", "flow-second"):
            self._runs(name)
            self._finish(name, 1)
        self._gone(JOBS, "flow-second")

    def a_deployment(self) -> None:
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "100m"}}}
        template = {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"schedulerName": "volcano", "containers": [container]},
        }
        spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}
        self._make(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec})
        until(lambda: len(self._placed("web-")) == 2)
        for replicas in (3, 0):
            self._client.patch(
                DEPLOYMENTS, "web", {"spec": {"replicas": replicas}}, namespace=self._namespace
            )
            until(lambda n=replicas: len(self._placed("web-")) == n)  # type: ignore[misc]
        until(lambda: not self._groups_of_workloads())

    def _groups_of_workloads(self) -> list[Object]:
        groups = self._client.list(PODGROUPS, namespace=self._namespace).items
        return [g for g in groups if g["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet"]

    def _placed(self, prefix: str) -> list[Object]:
        return [
            pod
            for pod in pods(self._client, self._namespace)
            if pod["metadata"]["name"].startswith(prefix)
            and pod["spec"].get("nodeName")
            and "deletionTimestamp" not in pod["metadata"]
        ]

    def an_urgent_job_takes_room(self) -> None:
        """The scheduler's ConfigMap is changed while it runs."""
        data = {"volcano-scheduler.conf": PREEMPTING}
        name, space = wellknown.SCHEDULER_CONFIG_MAP, wellknown.SYSTEM_NAMESPACE
        self._client.patch(CONFIGMAPS, name, {"data": data}, namespace=space)
        for level, value in (("low", 1), ("high", 1000)):
            self._client.create(PRIORITY_CLASSES, {"metadata": {"name": level}, "value": value})
        self._make(
            JOBS, job("low", replicas=12, cpu="900m", minAvailable=1, priorityClassName="low")
        )
        until(lambda: len(self._placed("low-")) == 12)
        self._make(JOBS, job("high", replicas=3, priorityClassName="high"))
        self._runs("high")
        for each in ("low", "high"):
            self._client.delete(JOBS, each, namespace=self._namespace)
            self._gone(JOBS, each)
        until(lambda: not self._placed("low-") and not self._placed("high-"))

    def a_job_behind_the_queue_allocation_gate(self) -> None:
        body = job("gated", replicas=1)
        template = body["spec"]["tasks"][0]["template"]
        gate = {wellknown.QUEUE_ALLOCATION_GATE: "true"}
        template.setdefault("metadata", {}).setdefault("annotations", {}).update(gate)
        self._make(JOBS, body)
        self._runs("gated")
        self._finish("gated", 1)

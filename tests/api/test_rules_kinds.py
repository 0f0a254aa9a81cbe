"""Rules of all kinds but pods and definitions: each row is an object and exactly its errors."""

from __future__ import annotations

import base64

import pytest

from tests.api.rule_bodies import (
    DUPLICATE,
    FORBIDDEN,
    INVALID,
    MEGABYTE,
    NOT_SUPPORTED,
    POD_RULE,
    PORT,
    RBAC,
    REQUIRED,
    TEMPLATE,
    TOO_LONG,
    batch_job,
    binding,
    budget,
    claim,
    cron_job,
    event,
    found,
    lease,
    limits,
    obj,
    priority,
    role,
    secret,
    service,
    taints,
    volume,
    workload,
)

KINDS = {
    "a config map": (obj("v1", "ConfigMap", data={"a.conf": "x", ".hidden": "y"}), []),
    "a config map key with a slash": (
        obj("v1", "ConfigMap", data={"a/b": "x"}),
        [(INVALID, "data[a/b]")],
    ),
    "a config map key that climbs out": (
        obj("v1", "ConfigMap", data={"..": "x"}),
        [(INVALID, "data[..]")],
    ),
    "a config map of just a megabyte": (obj("v1", "ConfigMap", data={"a": MEGABYTE}), []),
    "a config map beyond a megabyte": (
        obj("v1", "ConfigMap", data={"a": MEGABYTE, "b": "x"}),
        [(TOO_LONG, "data")],
    ),
    "a config map key in both halves": (
        obj("v1", "ConfigMap", data={"a": "x"}, binaryData={"a": "eA=="}),
        [(INVALID, "data[a]")],
    ),
    "a secret from text": (secret(stringData={"a": "x"}), []),
    "a secret beyond a megabyte": (
        secret(data={"a": base64.b64encode(b"x" * (1024 * 1024 + 1)).decode()}),
        [(TOO_LONG, "data")],
    ),
    "a secret that is no base64": (secret(data={"a": "!"}), [(INVALID, "data[a]")]),
    "a TLS secret without a key": (
        secret(type="kubernetes.io/tls", data={"tls.crt": ""}),
        [(REQUIRED, "data[tls.key]")],
    ),
    "a headless service without ports": (service(clusterIP="None"), []),
    "a service without ports": (service(), [(REQUIRED, "spec.ports")]),
    "a service port out of range": (
        service(ports=[{"port": 65536, "targetPort": 1}]),
        [(INVALID, "spec.ports[0].port")],
    ),
    "two service ports without names": (
        service(ports=[PORT, {"port": 81}]),
        [(REQUIRED, "spec.ports[0].name"), (REQUIRED, "spec.ports[1].name")],
    ),
    "one service port twice": (
        service(ports=[{"name": "a", **PORT}, {"name": "b", **PORT}]),
        [(DUPLICATE, "spec.ports[1]")],
    ),
    "two service ports of one name": (
        service(ports=[{"name": "a", "port": 1}, {"name": "a", "port": 2}]),
        [(DUPLICATE, "spec.ports[1].name")],
    ),
    "a service with a strange address": (
        service(ports=[PORT], clusterIP="here"),
        [(INVALID, "spec.clusterIPs[0]")],
    ),
    "a service of an unknown type": (
        service(ports=[PORT], type="Best"),
        [(NOT_SUPPORTED, "spec.type")],
    ),
    "an external name without a name": (
        service(type="ExternalName"),
        [(REQUIRED, "spec.externalName")],
    ),
    "a claim": (claim(), []),
    "a claim without access modes": (claim(accessModes=[]), [(REQUIRED, "spec.accessModes")]),
    "a claim of an unknown access mode": (
        claim(accessModes=["Often"]),
        [(NOT_SUPPORTED, "spec.accessModes")],
    ),
    "a claim for nothing": (
        claim(resources={}),
        [(REQUIRED, "spec.resources[storage]")],
    ),
    "a volume": (volume(), []),
    "a volume of two types": (volume(nfs={"server": "s"}), [(FORBIDDEN, "spec.nfs")]),
    "a volume without a size": (volume(capacity={}), [(REQUIRED, "spec.capacity")]),
    "a local volume anywhere": (
        volume(hostPath=None, local={"path": "/d"}),
        [(REQUIRED, "spec.nodeAffinity")],
    ),
    "a quota": (
        obj("v1", "ResourceQuota", spec={"hard": {"requests.cpu": "1", "count/jobs.batch": 3}}),
        [],
    ),
    "a quota below nothing": (
        obj("v1", "ResourceQuota", spec={"hard": {"pods": -1}}),
        [(INVALID, "spec.hard[pods]")],
    ),
    "a quota of opposite scopes": (
        obj("v1", "ResourceQuota", spec={"scopes": ["Terminating", "NotTerminating"]}),
        [(INVALID, "spec.scopes")],
    ),
    "a limit range": (limits(min={"cpu": "1"}, max={"cpu": "2"}), []),
    "a limit range upside down": (
        limits(
            min={"cpu": "3"}, max={"cpu": "2"}, default={"cpu": "2"}, defaultRequest={"cpu": "2"}
        ),
        [(INVALID, f"spec.limits[0].{f}[cpu]") for f in ("default", "defaultRequest", "min")],
    ),
    "a priority class": (priority(1_000_000_000), []),
    "a negative priority": (priority(-5), []),
    "a priority reserved for the system": (priority(1_000_000_001), [(FORBIDDEN, "value")]),
    "the system's own class": (priority(2_000_001_000, "system-node-critical"), []),
    "a name reserved for the system": (
        priority(1, "system-mine"),
        [(FORBIDDEN, "metadata.name")],
    ),
    "a budget by percentage": (budget(maxUnavailable="50%"), []),
    "a budget both ways": (budget(minAvailable=1, maxUnavailable=1), [(INVALID, "spec")]),
    "a budget beyond everything": (
        budget(minAvailable="101%"),
        [(INVALID, "spec.minAvailable")],
    ),
    "a budget below nothing": (budget(maxUnavailable=-1), [(INVALID, "spec.maxUnavailable")]),
    "a lease of no time": (lease(leaseDurationSeconds=0), [(INVALID, "spec.leaseDurationSeconds")]),
    "a lease": (lease(leaseDurationSeconds=15, holderIdentity="me", leaseTransitions=0), []),
    "a role": (role(**POD_RULE), []),
    "a role without verbs": (role(**{**POD_RULE, "verbs": []}), [(REQUIRED, "rules[0].verbs")]),
    "a role without groups": (
        role(**{**POD_RULE, "apiGroups": []}),
        [(REQUIRED, "rules[0].apiGroups")],
    ),
    "a role about URLs": (
        role(nonResourceURLs=["/metrics"], verbs=["get"]),
        [(INVALID, "rules[0].nonResourceURLs")],
    ),
    "a cluster role about URLs": (
        role("ClusterRole", nonResourceURLs=["/metrics"], verbs=["get"]),
        [],
    ),
    "a binding": (binding(kind="RoleBinding"), []),
    "a cluster-wide binding of a role": (
        binding("ClusterRoleBinding", {"kind": "Role", "name": "r"}),
        [(NOT_SUPPORTED, "roleRef.kind")],
    ),
    "a binding of nothing": (
        binding(ref={"kind": "Role", "name": ""}),
        [(REQUIRED, "roleRef.name")],
    ),
    "a taint": (taints({"key": "k", "effect": "NoSchedule"}), []),
    "a taint of unknown effect": (
        taints({"key": "k", "effect": "No"}),
        [(NOT_SUPPORTED, "spec.taints[0].effect")],
    ),
    "one taint twice": (
        taints(*[{"key": "k", "effect": "NoSchedule"}] * 2),
        [(DUPLICATE, "spec.taints[1]")],
    ),
    "an event beside its object": (event("ns", "ns"), []),
    "an event about a node": (event("default", ""), []),
    "an event far from its object": (event("a", "b"), [(INVALID, "involvedObject.namespace")]),
    "a deployment": (workload("Deployment"), []),
    "a stateful set whose pods mount its claims": (
        workload(
            "StatefulSet",
            volumeClaimTemplates=[{"metadata": {"name": "d"}, "spec": claim()["spec"]}],
            template={
                **TEMPLATE,
                "spec": {
                    "containers": [
                        {
                            "name": "c",
                            "image": "i",
                            "volumeMounts": [{"name": "d", "mountPath": "/d"}],
                        }
                    ]
                },
            },
        ),
        [],
    ),
    "a daemon set": (workload("DaemonSet"), []),
    "a replica set below nothing": (
        workload("ReplicaSet", replicas=-1),
        [(INVALID, "spec.replicas")],
    ),
    "a deployment that owns everything": (
        workload("Deployment", selector={}),
        [(INVALID, "spec.selector")],
    ),
    "a deployment that does not own its pods": (
        workload("Deployment", selector={"matchLabels": {"app": "y"}}),
        [(INVALID, "spec.template.metadata.labels")],
    ),
    "a deployment whose pods end": (
        workload(
            "Deployment",
            template={**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}},
        ),
        [(NOT_SUPPORTED, "spec.template.spec.restartPolicy")],
    ),
    "a job": (batch_job(), []),
    "a job whose pods never end": (
        batch_job("Always"),
        [(NOT_SUPPORTED, "spec.template.spec.restartPolicy")],
    ),
    "an indexed job without a number": (
        batch_job(completionMode="Indexed", parallelism=2),
        [(REQUIRED, "spec.completions")],
    ),
    "a cron job": (cron_job("@hourly"), []),
    "a cron job without a schedule": (cron_job(""), [(REQUIRED, "spec.schedule")]),
    "a cron job with four fields": (cron_job("* * * *"), [(INVALID, "spec.schedule")]),
    "a cron job whose jobs would have too long a name": (
        cron_job(name="a" * 53),
        [(INVALID, "metadata.name")],
    ),
    "a question": (
        {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {}},
        [],
    ),
}


@pytest.mark.parametrize("sentence", KINDS)
def test_kinds(sentence: str) -> None:
    body, want = KINDS[sentence]
    assert found(body) == sorted(want)


SUBJECTS = {
    "a user": ("RoleBinding", {"kind": "User", "name": "u"}, []),
    "nobody": ("RoleBinding", {"kind": "User", "name": ""}, [(REQUIRED, "subjects[0].name")]),
    "a robot": (
        "RoleBinding",
        {"kind": "Robot", "name": "r"},
        [(NOT_SUPPORTED, "subjects[0].kind")],
    ),
    "an account of some namespace": (
        "ClusterRoleBinding",
        {"kind": "ServiceAccount", "name": "s"},
        [(REQUIRED, "subjects[0].namespace")],
    ),
}


@pytest.mark.parametrize("sentence", SUBJECTS)
def test_subjects_of_bindings(sentence: str) -> None:
    kind, subject, want = SUBJECTS[sentence]
    body = obj(RBAC, kind, roleRef={"kind": "ClusterRole", "name": "v"}, subjects=[subject])
    assert found(body) == want

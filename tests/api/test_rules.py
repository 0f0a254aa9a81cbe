"""Rules of metadata and of all kinds but pods, and the format of errors."""

from __future__ import annotations

import base64
import copy
from typing import Any

import pytest

from hekla.api import crds, defaults, kinds, rules
from hekla.units.objects import Object

REQUIRED = "FieldValueRequired"
INVALID = "FieldValueInvalid"
DUPLICATE = "FieldValueDuplicate"
FORBIDDEN = "FieldValueForbidden"
NOT_SUPPORTED = "FieldValueNotSupported"
TOO_LONG = "FieldValueTooLong"
RBAC = "rbac.authorization.k8s.io/v1"


def obj(
    api_version: str, kind: Any, name: str = "a", meta: Object | None = None, **body: Any
) -> Object:
    made = {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, **(meta or {})},
        **copy.deepcopy(body),
    }
    defaults.apply_defaults(made)
    return made


def found(body: Object, old: Object | None = None) -> list[tuple[str, str]]:
    return sorted((e.type, e.field) for e in rules.validate(body, old))


# --- metadata ---------------------------------------------------------------------------------


def config_map(name: str = "a", **meta: Any) -> Object:
    return obj("v1", "ConfigMap", name, meta)


METADATA = {
    "a subdomain for a name": (config_map("web.v1-2"), []),
    "upper case in a name": (config_map("Web"), [(INVALID, "metadata.name")]),
    "a name that is too long": (config_map("a" * 254), [(INVALID, "metadata.name")]),
    "no name at all": (config_map(""), [(REQUIRED, "metadata.name")]),
    "a generated name": (config_map("", generateName="web-"), []),
    "a bad prefix": (config_map("", generateName="Web-"), [(INVALID, "metadata.generateName")]),
    "a namespace with a dot": (obj("v1", "Namespace", "a.b"), [(INVALID, "metadata.name")]),
    "a service with a dot": (
        obj("v1", "Service", "a.b", spec={"clusterIP": "None"}),
        [(INVALID, "metadata.name")],
    ),
    "a role with colons": (obj(RBAC, "ClusterRole", "system:Node"), []),
    "a role with a slash": (obj(RBAC, "Role", "a/b"), [(INVALID, "metadata.name")]),
    "a custom resource": (obj("example.com/v1", "Widget", "A"), [(INVALID, "metadata.name")]),
    "good labels": (config_map(labels={"app.kubernetes.io/name": "x", "empty": ""}), []),
    "a label value with spaces": (config_map(labels={"a": "b c"}), [(INVALID, "metadata.labels")]),
    "a label that is a number": (config_map(labels={"a": 1}), [(INVALID, "metadata.labels[a]")]),
    "an annotation key with spaces": (
        config_map(annotations={"a b": "c"}),
        [(INVALID, "metadata.annotations")],
    ),
    "annotations of any text": (config_map(annotations={"a": "any text {}!\n" * 100}), []),
    "annotation keys in capitals": (config_map(annotations={"Example.COM/Key": ""}), []),
    "annotations beyond 256 kB": (
        config_map(annotations={"a": "x" * 262_144}),
        [(TOO_LONG, "metadata.annotations")],
    ),
    "an owner without a uid": (
        config_map(ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "p"}]),
        [(INVALID, "metadata.ownerReferences.uid")],
    ),
    "two controllers": (
        config_map(
            ownerReferences=[
                {"apiVersion": "v1", "kind": "Pod", "name": n, "uid": n, "controller": True}
                for n in "ab"
            ]
        ),
        [(INVALID, "metadata.ownerReferences")],
    ),
    "a finalizer of a custom resource without a domain": (
        obj("example.com/v1", "Widget", meta={"finalizers": ["mine"]}),
        [],
    ),
    "a finalizer without a domain": (
        config_map(finalizers=["mine", "orphan"]),
        [(INVALID, "metadata.finalizers[0]")],
    ),
    "a finalizer with spaces": (
        config_map(finalizers=["not ok"]),
        [(INVALID, "metadata.finalizers[0]")],
    ),
}


@pytest.mark.parametrize("sentence", METADATA)
def test_metadata(sentence: str) -> None:
    body, want = METADATA[sentence]
    assert found(body) == want


def test_a_name_cannot_be_changed() -> None:
    assert found(config_map("b"), config_map("a")) == [(INVALID, "metadata.name")]


def test_finalizers_can_be_removed_but_not_added_during_deletion() -> None:
    old = config_map(finalizers=["a.b/c"], deletionTimestamp="2026-01-01T00:00:00Z")
    assert found(config_map(finalizers=["a.b/c"]), old) == []
    new = config_map(finalizers=["a.b/c", "x.y/z"])
    assert found(new, old) == [(FORBIDDEN, "metadata.finalizers")]


# --- kinds ------------------------------------------------------------------------------------


def secret(**body: Any) -> Object:
    return obj("v1", "Secret", **body)


def service(**spec: Any) -> Object:
    return obj("v1", "Service", spec=spec)


def claim(**spec: Any) -> Object:
    body = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return obj("v1", "PersistentVolumeClaim", spec={**body, **spec})


def volume(**spec: Any) -> Object:
    body = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "hostPath": {"path": "/d"},
    }
    return obj("v1", "PersistentVolume", spec={**body, **spec})


def priority(value: Any, name: str = "a", **body: Any) -> Object:
    return obj("scheduling.k8s.io/v1", "PriorityClass", name, value=value, **body)


def budget(**spec: Any) -> Object:
    return obj("policy/v1", "PodDisruptionBudget", spec=spec)


def role(kind: Any = "Role", **rule: Any) -> Object:
    return obj(RBAC, kind, rules=[rule])


def binding(kind: Any = "RoleBinding", ref: Any = None, **subject: Any) -> Object:
    reference = ref or {"kind": "ClusterRole", "name": "view"}
    return obj(RBAC, kind, roleRef=reference, subjects=[subject] if subject else [])


def limits(**item: Any) -> Object:
    return obj("v1", "LimitRange", spec={"limits": [{"type": "Container", **item}]})


def taints(*items: Any) -> Object:
    return obj("v1", "Node", spec={"taints": list(items)})


def event(namespace: str, about: Any) -> Object:
    return obj("v1", "Event", meta={"namespace": namespace}, involvedObject={"namespace": about})


def lease(**spec: Any) -> Object:
    return obj("coordination.k8s.io/v1", "Lease", spec=spec)


TEMPLATE: Object = {
    "metadata": {"labels": {"app": "x"}},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}


def workload(kind: Any, api_version: str = "apps/v1", **spec: Any) -> Object:
    body = {"selector": {"matchLabels": {"app": "x"}}, "template": TEMPLATE, **spec}
    return obj(api_version, kind, spec=body)


def batch_job(restart: str = "Never", **spec: Any) -> Object:
    template = copy.deepcopy(TEMPLATE)
    template["spec"]["restartPolicy"] = restart
    return obj("batch/v1", "Job", spec={"template": template, **spec})


def cron_job(schedule: str = "0 * * * *", name: str = "a", **spec: Any) -> Object:
    inner = {"spec": {"template": batch_job()["spec"]["template"]}}
    body = {"schedule": schedule, "jobTemplate": inner, **spec}
    return obj("batch/v1", "CronJob", name, spec=body)


MEGABYTE = "x" * (1024 * 1024)
PORT = {"port": 80}
POD_RULE = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}

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


# --- updates ----------------------------------------------------------------------------------


def bound(body: Any) -> Object:
    return {**body, "status": {"phase": "Bound"}}


UPDATES = {
    "an ordinary config map": (
        obj("v1", "ConfigMap", data={"a": "1"}),
        obj("v1", "ConfigMap", data={"a": "2"}),
        [],
    ),
    "an immutable config map": (
        obj("v1", "ConfigMap", data={"a": "1"}, immutable=True),
        obj("v1", "ConfigMap", data={"a": "2"}, immutable=True),
        [(FORBIDDEN, "data")],
    ),
    "making a secret mutable again": (
        secret(immutable=True),
        secret(),
        [(FORBIDDEN, "immutable")],
    ),
    "the type of a secret": (secret(), secret(type="example.com/x"), [(INVALID, "type")]),
    "the address of a service": (
        service(ports=[PORT], clusterIP="10.0.0.1"),
        service(ports=[PORT], clusterIP="10.0.0.2"),
        [(INVALID, "spec.clusterIPs[0]")],
    ),
    "a bound claim that grows": (
        bound(claim()),
        claim(resources={"requests": {"storage": "2Gi"}}),
        [],
    ),
    "a claim that shrinks": (
        bound(claim()),
        claim(resources={"requests": {"storage": "1Mi"}}),
        [(FORBIDDEN, "spec.resources.requests.storage")],
    ),
    "the access modes of a claim": (
        claim(),
        claim(accessModes=["ReadWriteMany"]),
        [(FORBIDDEN, "spec")],
    ),
    "a claim that is bound to a volume": (claim(), claim(volumeName="v"), []),
    "the value of a priority class": (priority(1), priority(2), [(FORBIDDEN, "value")]),
    "whether a priority class preempts": (
        priority(1),
        priority(1, preemptionPolicy="Never"),
        [(INVALID, "preemptionPolicy")],
    ),
    "the role of a binding": (
        binding(),
        binding(ref={"kind": "ClusterRole", "name": "edit"}),
        [(INVALID, "roleRef")],
    ),
    "the selector of a deployment": (
        workload("Deployment"),
        workload(
            "Deployment", selector={"matchExpressions": [{"key": "app", "operator": "Exists"}]}
        ),
        [(INVALID, "spec.selector")],
    ),
    "the replicas of a stateful set": (
        workload("StatefulSet"),
        workload("StatefulSet", replicas=5),
        [],
    ),
    "the service of a stateful set": (
        workload("StatefulSet"),
        workload("StatefulSet", serviceName="s"),
        [(FORBIDDEN, "spec")],
    ),
    "the completions of a job": (
        batch_job(completions=1),
        batch_job(completions=2),
        [(INVALID, "spec.completions")],
    ),
    "the provisioner of a storage class": (
        obj("storage.k8s.io/v1", "StorageClass", provisioner="a"),
        obj("storage.k8s.io/v1", "StorageClass", provisioner="b"),
        [(INVALID, "provisioner")],
    ),
}


@pytest.mark.parametrize("sentence", UPDATES)
def test_updates(sentence: str) -> None:
    old, new, want = UPDATES[sentence]
    assert found(new, old) == want


# --- definitions ------------------------------------------------------------------------------


def definition(schema: Any = None, name: str = "widgets.example.com", **changes: Any) -> Object:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", **(schema or {})}},
    }
    spec = {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"kind": "Widget", "plural": "widgets"},
        "versions": [{**version, **changes.pop("version", {})}, *changes.pop("more_versions", [])],
        **changes,
    }
    return obj("apiextensions.k8s.io/v1", "CustomResourceDefinition", name, spec=spec)


ROOT = "spec.versions[0].schema.openAPIV3Schema"
SECOND = {"name": "v2", "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}


def properties(**fields: Any) -> Object:
    return definition({"properties": fields})


DEFINITIONS = {
    "a small one": (definition(), []),
    "a name that does not fit": (
        definition(name="other.example.com"),
        [(INVALID, "metadata.name")],
    ),
    "a group without a dot": (
        definition(name="widgets.example", group="example"),
        [(INVALID, "spec.group")],
    ),
    "no scope": (definition(scope=""), [(NOT_SUPPORTED, "spec.scope")]),
    "no versions": (definition(versions=[]), [(REQUIRED, "spec.versions")]),
    "two stored versions": (definition(more_versions=[SECOND]), [(INVALID, "spec.versions")]),
    "no stored version": (definition(version={"storage": False}), [(INVALID, "spec.versions")]),
    "no schema": (definition(version={"schema": {}}), [(REQUIRED, ROOT)]),
    "a root that is no object": (definition({"type": "string"}), [(INVALID, f"{ROOT}.type")]),
    "a field without a type": (
        properties(a={"description": "?"}),
        [(REQUIRED, f"{ROOT}.properties[a].type")],
    ),
    "a field that is either": (properties(a={"x-kubernetes-int-or-string": True}), []),
    "a field of anything": (properties(a={"x-kubernetes-preserve-unknown-fields": True}), []),
    "a reference": (
        properties(a={"type": "object", "$ref": "#/x"}),
        [(FORBIDDEN, f"{ROOT}.properties[a].$ref")],
    ),
    "an array of nothing": (
        properties(a={"type": "array"}),
        [(REQUIRED, f"{ROOT}.properties[a].items")],
    ),
    "a type inside anyOf": (
        properties(a={"type": "string", "anyOf": [{"type": "string"}]}),
        [(FORBIDDEN, f"{ROOT}.properties[a].anyOf[0].type")],
    ),
    "values inside anyOf": (properties(a={"type": "string", "anyOf": [{"pattern": "x"}]}), []),
    "a list map without keys": (
        properties(
            a={"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}
        ),
        [(REQUIRED, f"{ROOT}.properties[a].x-kubernetes-list-map-keys")],
    ),
    "a list map with an optional key": (
        properties(
            a={
                "type": "array",
                "items": {"type": "object", "properties": {"n": {"type": "string"}}},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["n"],
            }
        ),
        [(REQUIRED, f"{ROOT}.properties[a].items.properties[n].default")],
    ),
    "a scale without paths": (
        definition(version={"subresources": {"scale": {"specReplicasPath": ".spec.n"}}}),
        [(REQUIRED, "spec.versions[0].subresources.scale.statusReplicasPath")],
    ),
    "a column of an unknown type": (
        definition(
            version={"additionalPrinterColumns": [{"name": "A", "type": "text", "jsonPath": ".a"}]}
        ),
        [(NOT_SUPPORTED, "spec.versions[0].additionalPrinterColumns[0].type")],
    ),
    "conversion by nobody": (
        definition(conversion={"strategy": "Webhook"}),
        [
            (REQUIRED, "spec.conversion.webhookClientConfig"),  # as Kubernetes names it inside
            (REQUIRED, "spec.conversion.conversionReviewVersions"),
        ],
    ),
}


@pytest.mark.parametrize("sentence", DEFINITIONS)
def test_definitions(sentence: str) -> None:
    body, want = DEFINITIONS[sentence]
    assert found(body) == sorted(want)


def test_shipped_crds_are_valid() -> None:
    for crd in crds.load():
        body = copy.deepcopy(crd)
        defaults.apply_defaults(body)
        assert [str(e) for e in rules.validate(body)] == []


def test_crd_scope_and_stored_versions_are_immutable() -> None:
    old = {**definition(), "status": {"storedVersions": ["v1"]}}
    assert found(definition(scope="Cluster"), old) == [(INVALID, "spec.scope")]
    renamed = definition(version={"name": "v2"})
    assert found(renamed, old) == [(INVALID, "status.storedVersions")]


# --- the form of errors -----------------------------------------------------------------------

BODIES = {
    'metadata.name: Invalid value: "A": must be a DNS subdomain': config_map("A"),
    "spec.ports: Required value: only headless services": service(),
    'spec.type: Unsupported value: "Best": supported values: "ClusterIP", ': service(
        type="Best", ports=[PORT]
    ),
    'spec.ports[1].name: Duplicate value: "a"': service(
        ports=[{"name": "a", "port": 1}, {"name": "a", "port": 2}]
    ),
    "spec.nfs: Forbidden: may not specify more than 1 volume type": volume(nfs={"server": "s"}),
    "metadata.annotations: Too long: may not be more than 262144 bytes": config_map(
        annotations={"a": "x" * 262_144}
    ),
    "spec.hard[pods]: Invalid value: -1: must be": obj(
        "v1", "ResourceQuota", spec={"hard": {"pods": -1}}
    ),
}


@pytest.mark.parametrize("want", BODIES)
def test_errors_have_kubernetes_format(want: str) -> None:
    [error] = rules.validate(BODIES[want])
    assert str(error).startswith(want)


def test_causes_are_those_of_a_status() -> None:
    assert rules.causes(rules.validate(config_map(""))) == [
        {
            "reason": "FieldValueRequired",
            "message": "Required value: name or generateName is required",
            "field": "metadata.name",
        }
    ]


def test_a_summary_lists_all_errors_and_a_single_one_without_brackets() -> None:
    one = rules.validate(service())
    two = rules.validate(service(type="Best"))
    assert rules.summary("Service", "a", one).startswith('Service "a" is invalid: spec.ports: ')
    assert rules.summary("Service", "a", two).startswith('Service "a" is invalid: [spec.type: ')


def test_long_invalid_value_is_truncated() -> None:
    [error] = rules.validate(config_map("x" * 10_000))
    assert len(str(error)) < 500


def test_second_registration_of_rules_is_rejected() -> None:
    with pytest.raises(ValueError, match="v1 Pod already has rules"):
        rules.register([("v1", "Pod", lambda obj, old: iter(()))])


@pytest.mark.parametrize("kind", kinds.BUILTIN, ids=lambda k: f"{k.api_version}-{k.kind}")
def test_empty_object_of_any_kind_is_validated_without_error(kind: Any) -> None:
    empty = obj(kind.api_version, kind.kind)
    assert all(str(e) for e in rules.validate(empty))
    assert all(str(e) for e in rules.validate(empty, empty))

"""Defaults by kind."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from hekla.api import defaults, kinds, schemas
from hekla.units.objects import Object
from tests.api.steps import steps

MINIMAL_POD: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a"},
    "spec": {"containers": [{"name": "c", "image": "busybox"}]},
}
CONTAINER_DEFAULTS = {
    "imagePullPolicy": "Always",
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "resources": {},
}
SPEC_DEFAULTS = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
    "securityContext": {},
}


def defaulted(obj: Object) -> Object:
    obj = copy.deepcopy(obj)
    defaults.apply_defaults(obj)
    return obj


def pod(**spec: Any) -> Object:
    body = copy.deepcopy(MINIMAL_POD)
    body["spec"].update(spec)
    return body


def container(**fields: Any) -> Object:
    return pod(containers=[{"name": "c", "image": "i:1", **fields}])


def test_minimal_pod_gets_kubernetes_defaults() -> None:
    assert defaulted(MINIMAL_POD)["spec"] == {
        **SPEC_DEFAULTS,
        "enableServiceLinks": True,
        "containers": [{"name": "c", "image": "busybox", **CONTAINER_DEFAULTS}],
    }


def test_defaults_applied_twice_change_nothing() -> None:
    once = defaulted(container(ports=[{"containerPort": 1}], livenessProbe={"httpGet": {}}))
    assert defaulted(once) == once


def test_explicit_values_are_kept() -> None:
    body = pod(
        restartPolicy="Never",
        schedulerName="volcano",
        terminationGracePeriodSeconds=0,
        enableServiceLinks=False,
        securityContext={"runAsUser": 1},
    )
    spec = defaulted(body)["spec"]
    assert {key: spec[key] for key in body["spec"] if key != "containers"} == {
        key: value for key, value in body["spec"].items() if key != "containers"
    }


@pytest.mark.parametrize(
    ("image", "want"),
    {
        "busybox": "Always",
        "busybox:latest": "Always",
        "busybox:1.36": "IfNotPresent",
        "registry:5000/team/app": "Always",
        "registry:5000/team/app:v2": "IfNotPresent",
        "app@sha256:abc": "IfNotPresent",
        "app:latest@sha256:abc": "Always",
        "": "IfNotPresent",
    }.items(),
)
def test_only_floating_tags_are_always_pulled(image: str, want: str) -> None:
    body = pod(containers=[{"name": "c", "image": image}])
    assert defaulted(body)["spec"]["containers"][0]["imagePullPolicy"] == want


def test_requests_follow_limits_resource_by_resource() -> None:
    body = container(resources={"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}})
    resources = defaulted(body)["spec"]["containers"][0]["resources"]
    assert resources["requests"] == {"cpu": "1", "memory": "1Gi"}


def test_requests_from_limits_are_a_copy() -> None:
    resources = defaulted(container(resources={"limits": {"cpu": "2"}}))["spec"]["containers"][0][
        "resources"
    ]
    assert resources["requests"] == resources["limits"]
    assert resources["requests"] is not resources["limits"]


def test_template_gets_no_pod_only_defaults() -> None:
    body = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "spec": {"template": {"spec": container(resources={"limits": {"cpu": 1}})["spec"]}},
    }
    spec = defaulted(body)["spec"]["template"]["spec"]
    assert "enableServiceLinks" not in spec
    assert "requests" not in spec["containers"][0]["resources"]
    assert spec["schedulerName"] == "default-scheduler"


def test_host_network_pods_get_host_ports() -> None:
    body = pod(
        hostNetwork=True, containers=[{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]
    )
    assert defaulted(body)["spec"]["containers"][0]["ports"] == [
        {"containerPort": 80, "hostPort": 80, "protocol": "TCP"}
    ]


def test_both_service_account_fields_agree() -> None:
    spec = defaulted(pod(serviceAccount="robot"))["spec"]
    assert (spec["serviceAccount"], spec["serviceAccountName"]) == ("robot", "robot")


def test_probes_get_defaults() -> None:
    probe = defaulted(container(readinessProbe={"httpGet": {"port": 80}}))["spec"]["containers"][0]
    assert probe["readinessProbe"] == {
        "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }


def test_field_references_get_version_and_divisor() -> None:
    env = [
        {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "B", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
    ]
    first, second = defaulted(container(env=env))["spec"]["containers"][0]["env"]
    assert first["valueFrom"]["fieldRef"]["apiVersion"] == "v1"
    assert second["valueFrom"]["resourceFieldRef"]["divisor"] == "0"


VOLUMES: dict[str, tuple[Object, Object]] = {
    "a volume with no source is an empty directory": ({}, {"emptyDir": {}}),
    "a secret's files": (
        {"secret": {"secretName": "s"}},
        {"secret": {"secretName": "s", "defaultMode": 420}},
    ),
    "a config map's files keep a mode that was set": (
        {"configMap": {"name": "m", "defaultMode": 256}},
        {"configMap": {"name": "m", "defaultMode": 256}},
    ),
    "a host path of any type": (
        {"hostPath": {"path": "/x"}},
        {"hostPath": {"path": "/x", "type": ""}},
    ),
    "a projected token lives an hour": (
        {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
        {
            "projected": {
                "defaultMode": 420,
                "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}],
            }
        },
    ),
    "pod fields as files": (
        {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        {
            "downwardAPI": {
                "defaultMode": 420,
                "items": [
                    {"path": "n", "fieldRef": {"fieldPath": "metadata.name", "apiVersion": "v1"}}
                ],
            }
        },
    ),
    "an ephemeral claim": (
        {"ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        {"ephemeral": {"volumeClaimTemplate": {"spec": {"volumeMode": "Filesystem"}}}},
    ),
}


@pytest.mark.parametrize("sentence", VOLUMES)
def test_volumes(sentence: str) -> None:
    given, want = VOLUMES[sentence]
    body = pod(volumes=[{"name": "v", **given}])
    assert defaulted(body)["spec"]["volumes"] == [{"name": "v", **want}]


QOS = {
    "nothing asked is best effort": ({}, "BestEffort"),
    "zero asked is nothing asked": ({"requests": {"cpu": "0"}}, "BestEffort"),
    "other resources do not count": ({"requests": {"nvidia.com/gpu": 1}}, "BestEffort"),
    "a request alone is burstable": ({"requests": {"cpu": "1"}}, "Burstable"),
    "limits for cpu alone are burstable": ({"limits": {"cpu": "1"}}, "Burstable"),
    "limits for both are guaranteed": ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
    "equal amounts in other words are guaranteed": (
        {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1Gi"}},
        "Guaranteed",
    ),
    "requests below limits are burstable": (
        {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}},
        "Burstable",
    ),
}


@pytest.mark.parametrize("sentence", QOS)
def test_quality_of_service(sentence: str) -> None:
    resources, want = QOS[sentence]
    body = defaulted(container(resources=resources))
    assert defaults.initial_status(body) == {"phase": "Pending", "qosClass": want}


KINDS: dict[str, tuple[Object, Object]] = {
    "a namespace is active, labelled with its name and held by kubernetes": (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
        {
            "metadata": {"name": "team", "labels": {"kubernetes.io/metadata.name": "team"}},
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        },
    ),
    "a secret is opaque, and its text ends up in data": (
        {"apiVersion": "v1", "kind": "Secret", "stringData": {"a": "é"}, "data": {"b": "eA=="}},
        {"type": "Opaque", "data": {"a": "w6k=", "b": "eA=="}},
    ),
    "a headless service": (
        {
            "apiVersion": "v1",
            "kind": "Service",
            "spec": {"clusterIP": "None", "ports": [{"port": 1}]},
        },
        {
            "spec": {
                "clusterIP": "None",
                "type": "ClusterIP",
                "sessionAffinity": "None",
                "internalTrafficPolicy": "Cluster",
                "ports": [{"port": 1, "targetPort": 1, "protocol": "TCP"}],
            }
        },
    ),
    "an external name is only a name": (
        {
            "apiVersion": "v1",
            "kind": "Service",
            "spec": {"type": "ExternalName", "externalName": "x.y"},
        },
        {"spec": {"type": "ExternalName", "externalName": "x.y", "sessionAffinity": "None"}},
    ),
    "a node offers all it has": (
        {"apiVersion": "v1", "kind": "Node", "status": {"capacity": {"cpu": "4"}}},
        {"status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}}},
    ),
    "a claim is for a file system": (
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": {}},
        {"spec": {"volumeMode": "Filesystem"}, "status": {"phase": "Pending"}},
    ),
    "a volume is kept": (
        {"apiVersion": "v1", "kind": "PersistentVolume", "spec": {"hostPath": {"path": "/d"}}},
        {
            "spec": {
                "hostPath": {"path": "/d", "type": ""},
                "persistentVolumeReclaimPolicy": "Retain",
                "volumeMode": "Filesystem",
            },
            "status": {"phase": "Pending"},
        },
    ),
    "a limit range defaults to its own bounds": (
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "spec": {
                "limits": [
                    {"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}},
                    {"type": "Pod", "max": {"cpu": "2"}},
                ]
            },
        },
        {
            "spec": {
                "limits": [
                    {
                        "type": "Container",
                        "max": {"cpu": "2"},
                        "min": {"memory": "1Mi"},
                        "default": {"cpu": "2"},
                        "defaultRequest": {"cpu": "2", "memory": "1Mi"},
                    },
                    {"type": "Pod", "max": {"cpu": "2"}},
                ]
            }
        },
    ),
    "a deployment rolls out step by step": (
        {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {}},
        {
            "spec": {
                "replicas": 1,
                "revisionHistoryLimit": 10,
                "progressDeadlineSeconds": 600,
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
                },
            }
        },
    ),
    "a deployment that recreates has no steps": (
        {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"strategy": {"type": "Recreate"}}},
        {
            "spec": {
                "replicas": 1,
                "revisionHistoryLimit": 10,
                "progressDeadlineSeconds": 600,
                "strategy": {"type": "Recreate"},
            }
        },
    ),
    "zero replicas are a choice": (
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "spec": {"replicas": 0}},
        {"spec": {"replicas": 0}},
    ),
    "a stateful set keeps order and claims": (
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "spec": {"volumeClaimTemplates": [{"metadata": {"name": "d"}, "spec": {}}]},
        },
        {
            "spec": {
                "replicas": 1,
                "revisionHistoryLimit": 10,
                "podManagementPolicy": "OrderedReady",
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
                "persistentVolumeClaimRetentionPolicy": {
                    "whenDeleted": "Retain",
                    "whenScaled": "Retain",
                },
                "volumeClaimTemplates": [
                    {
                        "apiVersion": "v1",
                        "kind": "PersistentVolumeClaim",
                        "metadata": {"name": "d"},
                        "spec": {"volumeMode": "Filesystem"},
                        "status": {"phase": "Pending"},
                    }
                ],
            }
        },
    ),
    "a job runs one pod once": (
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "spec": {"template": {"metadata": {"labels": {"a": "b"}}}},
        },
        {
            "metadata": {"labels": {"a": "b"}},
            "spec": {
                "template": {"metadata": {"labels": {"a": "b"}}},
                "completions": 1,
                "parallelism": 1,
                "backoffLimit": 6,
                "completionMode": "NonIndexed",
                "suspend": False,
                "manualSelector": False,
                "podReplacementPolicy": "TerminatingOrFailed",
            },
        },
    ),
    "a work-queue job has no number of completions": (
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "spec": {"parallelism": 3}},
        {
            "metadata": {},
            "spec": {
                "parallelism": 3,
                "backoffLimit": 6,
                "completionMode": "NonIndexed",
                "suspend": False,
                "manualSelector": False,
                "podReplacementPolicy": "TerminatingOrFailed",
            },
        },
    ),
    "a cron job keeps three good runs and one bad": (
        {"apiVersion": "batch/v1", "kind": "CronJob", "spec": {}},
        {
            "spec": {
                "concurrencyPolicy": "Allow",
                "suspend": False,
                "successfulJobsHistoryLimit": 3,
                "failedJobsHistoryLimit": 1,
            }
        },
    ),
    "a priority class may preempt": (
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1},
        {"value": 1, "preemptionPolicy": "PreemptLowerPriority"},
    ),
    "a storage class deletes and binds at once": (
        {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "p"},
        {"provisioner": "p", "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
    ),
    "subjects get the group of their kind": (
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "roleRef": {"kind": "Role", "name": "r"},
            "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s"}],
        },
        {
            "roleRef": {
                "kind": "Role",
                "name": "r",
                "apiGroup": "rbac.authorization.k8s.io",
            },
            "subjects": [
                {"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"},
                {"kind": "ServiceAccount", "name": "s"},
            ],
        },
    ),
    "a network policy is about what it mentions": (
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "spec": {"egress": [{"ports": [{"port": 1}]}]},
        },
        {
            "spec": {
                "egress": [{"ports": [{"port": 1, "protocol": "TCP"}]}],
                "policyTypes": ["Ingress", "Egress"],
            }
        },
    ),
    "a definition names its list and its singular": (
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "spec": {"names": {"kind": "Widget", "plural": "widgets"}},
        },
        {
            "spec": {
                "names": {
                    "kind": "Widget",
                    "plural": "widgets",
                    "singular": "widget",
                    "listKind": "WidgetList",
                },
                "conversion": {"strategy": "None"},
            }
        },
    ),
    "a webhook fails closed within ten seconds": (
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "webhooks": [{"clientConfig": {"service": {"name": "s"}}, "rules": [{}]}],
        },
        {
            "webhooks": [
                {
                    "clientConfig": {"service": {"name": "s", "port": 443}},
                    "rules": [{"scope": "*"}],
                    "failurePolicy": "Fail",
                    "timeoutSeconds": 10,
                    "matchPolicy": "Equivalent",
                    "namespaceSelector": {},
                    "objectSelector": {},
                    "reinvocationPolicy": "Never",
                }
            ]
        },
    ),
}


@pytest.mark.parametrize("sentence", KINDS)
def test_kinds(sentence: str) -> None:
    given, want = KINDS[sentence]
    found = defaulted(given)
    assert {k: v for k, v in found.items() if k not in ("apiVersion", "kind")} == want


def test_terminating_namespace_does_not_get_its_finalizer_back() -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {},
    }
    assert defaulted(body)["spec"] == {}


def test_null_counts_as_absent() -> None:
    body = pod(volumes=None, securityContext=None, initContainers=None)
    spec = defaulted(body)["spec"]
    assert (spec["securityContext"], spec["volumes"]) == ({}, None)


def test_unknown_kinds_are_not_changed() -> None:
    body = {"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"a": 1}}
    assert defaulted(body) == body


def test_second_registration_of_defaults_is_rejected() -> None:
    with pytest.raises(ValueError, match="v1 Pod already has defaults"):
        defaults.register([("v1", "Pod", lambda obj: None)])


@pytest.mark.parametrize("kind", kinds.BUILTIN, ids=lambda k: f"{k.api_version}-{k.kind}")
def test_empty_object_of_any_kind_is_defaulted_without_error(kind: Any) -> None:
    empty = {"apiVersion": kind.api_version, "kind": kind.kind}
    defaults.apply_defaults(empty)
    with_spec = {**empty, "metadata": {}, "spec": {}}
    defaults.apply_defaults(with_spec)
    known = schemas.schema_for(kind.api_version, kind.kind)["properties"]
    assert (empty.keys() | with_spec.keys()) - {"spec"} <= known.keys()


def test_a_pod_is_defaulted_in_tens_of_microseconds() -> None:
    body = container(
        env=[{"name": f"E{i}", "value": "x"} for i in range(10)],
        ports=[{"containerPort": 80}],
        resources={"limits": {"cpu": "1"}},
        livenessProbe={"httpGet": {"port": 80}},
    )
    body["spec"]["volumes"] = [{"name": "v", "secret": {"secretName": "s"}}]
    defaults.apply_defaults(copy.deepcopy(body))
    assert steps(defaults.apply_defaults, body) < 150, "a dozen microseconds are 70 of them"


def test_written_container_status_gets_defaults() -> None:
    """Strict clients reject a status without fields that Kubernetes always sets."""
    body = pod() | {"status": {"containerStatuses": [{"name": "c", "restartCount": 2}]}}
    defaults.apply_status_defaults(body)
    assert body["status"]["containerStatuses"] == [
        {
            "name": "c",
            "image": "",
            "imageID": "",
            "ready": False,
            "restartCount": 2,
            "state": {},
            "lastState": {},
        }
    ]
    other = {"apiVersion": "v1", "kind": "Node", "status": {"phase": "Running"}}
    defaults.apply_status_defaults(other)
    assert other["status"] == {"phase": "Running"}

"""Rules of pods: each row is a pod and exactly its errors."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from hekla.api import defaults, rules
from hekla.units.objects import Object

REQUIRED = "FieldValueRequired"
INVALID = "FieldValueInvalid"
DUPLICATE = "FieldValueDuplicate"
FORBIDDEN = "FieldValueForbidden"
NOT_SUPPORTED = "FieldValueNotSupported"
NOT_FOUND = "FieldValueNotFound"


def pod(container: Any = None, **spec: Any) -> Object:
    containers = spec.pop("containers", [{"name": "c", "image": "i:1", **(container or {})}])
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": "ns"},
        "spec": {"containers": containers, **spec},
    }
    defaults.apply_defaults(body)
    return body


def found(obj: Object, old: Object | None = None) -> list[tuple[str, str]]:
    return sorted((e.type, e.field) for e in rules.validate(obj, old))


def volumes(*items: Any) -> Object:
    return pod(volumes=[{"name": "v", **item} for item in items])


def from_field(path: str) -> Object:
    return {"fieldRef": {"fieldPath": path}}


def affinity(**terms: Any) -> Object:
    return pod(affinity=terms)


REQUIRED_TERMS = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED_TERMS = "preferredDuringSchedulingIgnoredDuringExecution"
C0 = "spec.containers[0]"

GOOD = {
    "a minimal pod": pod(),
    "a pod that uses most of what there is": pod(
        {
            "ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 81, "hostPort": 81}],
            "env": [
                {"name": "A", "value": "b"},
                {"name": "my.odd-NAME", "valueFrom": from_field("metadata.labels['app']")},
            ],
            "envFrom": [{"configMapRef": {"name": "m"}}],
            "resources": {
                "limits": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": 1},
                "requests": {"cpu": "1500m", "memory": "1Gi"},
            },
            "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "a/b"}],
            "livenessProbe": {"httpGet": {"port": "http"}},
            "readinessProbe": {"tcpSocket": {"port": 80}, "successThreshold": 2},
            "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
        },
        volumes=[{"name": "v", "configMap": {"name": "m", "items": [{"key": "k", "path": "p"}]}}],
        initContainers=[
            {
                "name": "sidecar",
                "image": "i",
                "restartPolicy": "Always",
                "startupProbe": {"exec": {"command": ["true"]}},
            }
        ],
        nodeSelector={"disk": "ssd"},
        tolerations=[{"operator": "Exists"}, {"key": "k", "value": "v", "effect": "NoSchedule"}],
        topologySpreadConstraints=[
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
        ],
        schedulingGates=[{"name": "example.com/gate"}],
        schedulerName="volcano",
        hostname="h",
        subdomain="s",
        activeDeadlineSeconds=1,
        overhead={"cpu": "10m"},
    ),
    "affinity of all three sorts": affinity(
        nodeAffinity={
            REQUIRED_TERMS: {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}
                ]
            },
            PREFERRED_TERMS: [
                {
                    "weight": 100,
                    "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
                }
            ],
        },
        podAffinity={REQUIRED_TERMS: [{"topologyKey": "zone"}]},
        podAntiAffinity={
            PREFERRED_TERMS: [
                {
                    "weight": 1,
                    "podAffinityTerm": {
                        "topologyKey": "zone",
                        "labelSelector": {"matchLabels": {"a": "b"}},
                    },
                }
            ]
        },
    ),
    "an empty label selector value": pod(tolerations=[{"key": "k", "operator": "Exists"}]),
}


@pytest.mark.parametrize("sentence", GOOD)
def test_valid_pods_pass(sentence: str) -> None:
    assert [str(e) for e in rules.validate(GOOD[sentence])] == []


BAD = {
    "no containers": (pod(containers=[]), [(REQUIRED, "spec.containers")]),
    "no image": (pod({"image": ""}), [(REQUIRED, f"{C0}.image")]),
    "an image with spaces around it": (pod({"image": " i"}), [(INVALID, f"{C0}.image")]),
    "no container name": (pod({"name": ""}), [(REQUIRED, f"{C0}.name")]),
    "a container name that is no DNS label": (pod({"name": "A_b"}), [(INVALID, f"{C0}.name")]),
    "a name used by a container and an init container": (
        pod(initContainers=[{"name": "c", "image": "i"}]),
        [(DUPLICATE, "spec.initContainers[0].name")],
    ),
    "a port out of range": (
        pod({"ports": [{"containerPort": 65536}]}),
        [(INVALID, f"{C0}.ports[0].containerPort")],
    ),
    "a port without a number": (
        pod({"ports": [{"name": "http"}]}),
        [(REQUIRED, f"{C0}.ports[0].containerPort")],
    ),
    "a port name that is too long": (
        pod({"ports": [{"containerPort": 1, "name": "a" * 16}]}),
        [(INVALID, f"{C0}.ports[0].name")],
    ),
    "a port name without a letter": (
        pod({"ports": [{"containerPort": 1, "name": "80"}]}),
        [(INVALID, f"{C0}.ports[0].name")],
    ),
    "an unknown protocol": (
        pod({"ports": [{"containerPort": 1, "protocol": "tcp"}]}),
        [(NOT_SUPPORTED, f"{C0}.ports[0].protocol")],
    ),
    "the same host port twice": (
        pod({"ports": [{"containerPort": 1, "hostPort": 9}, {"containerPort": 2, "hostPort": 9}]}),
        [(DUPLICATE, f"{C0}.ports[1].hostPort")],
    ),
    "another host port than container port on the host's network": (
        pod({"ports": [{"containerPort": 1, "hostPort": 9}]}, hostNetwork=True),
        [(INVALID, f"{C0}.ports[0].hostPort")],
    ),
    "a quantity that is none": (
        pod({"resources": {"limits": {"cpu": "lots"}}}),
        [(INVALID, f"{C0}.resources.limits[cpu]"), (INVALID, f"{C0}.resources.requests[cpu]")],
    ),
    "a negative quantity": (
        pod({"resources": {"requests": {"memory": "-1"}}}),
        [(INVALID, f"{C0}.resources.requests[memory]")],
    ),
    "a request above its limit": (
        pod({"resources": {"requests": {"cpu": 2}, "limits": {"cpu": 1}}}),
        [(INVALID, f"{C0}.resources.requests")],
    ),
    "a device request that differs from its limit": (
        pod({"resources": {"requests": {"a.com/gpu": 1}, "limits": {"a.com/gpu": 2}}}),
        [(INVALID, f"{C0}.resources.requests")],
    ),
    "a device request without a limit": (
        pod({"resources": {"requests": {"a.com/gpu": 1}}}),
        [(REQUIRED, f"{C0}.resources.limits")],
    ),
    "half a device": (
        pod({"resources": {"limits": {"a.com/gpu": "500m"}}}),
        [
            (INVALID, f"{C0}.resources.limits[a.com/gpu]"),
            (INVALID, f"{C0}.resources.requests[a.com/gpu]"),
        ],
    ),
    "an unknown resource": (
        pod({"resources": {"requests": {"gpu": 1}}}),
        [(INVALID, f"{C0}.resources.requests[gpu]")],
    ),
    "a mount of a volume that is not there": (
        pod({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}),
        [(NOT_FOUND, f"{C0}.volumeMounts[0].name")],
    ),
    "two mounts at one place": (
        pod(
            {"volumeMounts": [{"name": "v", "mountPath": "/v"}, {"name": "v", "mountPath": "/v"}]},
            volumes=[{"name": "v"}],
        ),
        [(INVALID, f"{C0}.volumeMounts[1].mountPath")],
    ),
    "a sub-path that climbs out": (
        pod(
            {"volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "../etc"}]},
            volumes=[{"name": "v"}],
        ),
        [(INVALID, f"{C0}.volumeMounts[0].subPath")],
    ),
    "an environment variable without a name": (
        pod({"env": [{"value": "x"}]}),
        [(REQUIRED, f"{C0}.env[0].name")],
    ),
    "an environment variable with an equals sign in its name": (
        pod({"env": [{"name": "A=B"}]}),
        [(INVALID, f"{C0}.env[0].name")],
    ),
    "a variable with a value and a source": (
        pod({"env": [{"name": "A", "value": "b", "valueFrom": from_field("metadata.uid")}]}),
        [(INVALID, f"{C0}.env[0].valueFrom")],
    ),
    "a variable from a field that is not offered": (
        pod({"env": [{"name": "A", "valueFrom": from_field("spec.containers")}]}),
        [(INVALID, f"{C0}.env[0].valueFrom.fieldRef.fieldPath")],
    ),
    "a secret key without a key": (
        pod({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s"}}}]}),
        [(REQUIRED, f"{C0}.env[0].valueFrom.secretKeyRef.key")],
    ),
    "a probe that does nothing": (
        pod({"livenessProbe": {"periodSeconds": 5}}),
        [(REQUIRED, f"{C0}.livenessProbe")],
    ),
    "a liveness probe that must pass twice": (
        pod({"livenessProbe": {"tcpSocket": {"port": 1}, "successThreshold": 2}}),
        [(INVALID, f"{C0}.livenessProbe.successThreshold")],
    ),
    "a probe of an init container that ends": (
        pod(
            initContainers=[
                {"name": "i", "image": "i", "livenessProbe": {"tcpSocket": {"port": 1}}}
            ]
        ),
        [(FORBIDDEN, "spec.initContainers[0].livenessProbe")],
    ),
    "an unknown pull policy": (
        pod({"imagePullPolicy": "Sometimes"}),
        [(NOT_SUPPORTED, f"{C0}.imagePullPolicy")],
    ),
    "an unknown restart policy": (
        pod(restartPolicy="Maybe"),
        [(NOT_SUPPORTED, "spec.restartPolicy")],
    ),
    "an unknown DNS policy": (pod(dnsPolicy="Local"), [(NOT_SUPPORTED, "spec.dnsPolicy")]),
    "no DNS policy and no servers": (
        pod(dnsPolicy="None"),
        [(REQUIRED, "spec.dnsConfig")],
    ),
    "a deadline of nothing": (
        pod(activeDeadlineSeconds=0),
        [(INVALID, "spec.activeDeadlineSeconds")],
    ),
    "an ephemeral claim for nothing": (
        volumes(
            {"ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}}
        ),
        [(REQUIRED, "spec.volumes[0].ephemeral.volumeClaimTemplate.spec.resources[storage]")],
    ),
    "two volumes of one name": (volumes({}, {}), [(DUPLICATE, "spec.volumes[1].name")]),
    "a volume of two types": (
        volumes({"emptyDir": {}, "hostPath": {"path": "/x"}}),
        [(FORBIDDEN, "spec.volumes[0].hostPath")],
    ),
    "a secret volume without a secret": (
        volumes({"secret": {}}),
        [(REQUIRED, "spec.volumes[0].secret.secretName")],
    ),
    "a claim volume without a claim": (
        volumes({"persistentVolumeClaim": {}}),
        [(REQUIRED, "spec.volumes[0].persistentVolumeClaim.claimName")],
    ),
    "a host path that climbs out": (
        volumes({"hostPath": {"path": "/a/../../etc"}}),
        [(INVALID, "spec.volumes[0].hostPath.path")],
    ),
    "an item that climbs out": (
        volumes({"secret": {"secretName": "s", "items": [{"key": "k", "path": "../x"}]}}),
        [(INVALID, "spec.volumes[0].secret.items[0].path")],
    ),
    "a mode beyond 0777": (
        volumes({"secret": {"secretName": "s", "defaultMode": 1000}}),
        [(INVALID, "spec.volumes[0].secret.defaultMode")],
    ),
    "a node selector that is no label": (
        pod(nodeSelector={"a b": "c"}),
        [(INVALID, "spec.nodeSelector")],
    ),
    "a toleration of no key by equality": (
        pod(tolerations=[{"value": "v"}]),
        [(INVALID, "spec.tolerations[0].operator")],
    ),
    "a toleration with seconds that never evicts": (
        pod(tolerations=[{"key": "k", "operator": "Exists", "tolerationSeconds": 1}]),
        [(INVALID, "spec.tolerations[0].effect")],
    ),
    "an unknown taint effect": (
        pod(tolerations=[{"key": "k", "operator": "Exists", "effect": "NoWay"}]),
        [(NOT_SUPPORTED, "spec.tolerations[0].effect")],
    ),
    "a preference without weight": (
        affinity(nodeAffinity={PREFERRED_TERMS: [{"weight": 0, "preference": {}}]}),
        [(INVALID, f"spec.affinity.nodeAffinity.{PREFERRED_TERMS}[0].weight")],
    ),
    "a pod affinity without a topology": (
        affinity(podAffinity={REQUIRED_TERMS: [{"labelSelector": {}}]}),
        [(REQUIRED, f"spec.affinity.podAffinity.{REQUIRED_TERMS}[0].topologyKey")],
    ),
    "a node affinity without terms": (
        affinity(nodeAffinity={REQUIRED_TERMS: {"nodeSelectorTerms": []}}),
        [(REQUIRED, f"spec.affinity.nodeAffinity.{REQUIRED_TERMS}.nodeSelectorTerms")],
    ),
    "an expression In nothing": (
        affinity(
            nodeAffinity={
                REQUIRED_TERMS: {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In"}]}]
                }
            }
        ),
        [
            (
                REQUIRED,
                f"spec.affinity.nodeAffinity.{REQUIRED_TERMS}"
                ".nodeSelectorTerms[0].matchExpressions[0].values",
            )
        ],
    ),
    "spreading without skew": (
        pod(
            topologySpreadConstraints=[
                {"maxSkew": 0, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}
            ]
        ),
        [(INVALID, "spec.topologySpreadConstraints[0].maxSkew")],
    ),
    "spreading twice over the same domains": (
        pod(
            topologySpreadConstraints=[
                {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"},
                {"maxSkew": 2, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"},
            ]
        ),
        [(DUPLICATE, "spec.topologySpreadConstraints[1]")],
    ),
    "the same gate twice": (
        pod(schedulingGates=[{"name": "g"}, {"name": "g"}]),
        [(DUPLICATE, "spec.schedulingGates[1]")],
    ),
    "a gated pod that is placed already": (
        pod(schedulingGates=[{"name": "g"}], nodeName="n"),
        [(FORBIDDEN, "spec.nodeName")],
    ),
    "a host name with dots": (pod(hostname="a.b"), [(INVALID, "spec.hostname")]),
    "a host alias that is no address": (
        pod(hostAliases=[{"ip": "nowhere", "hostnames": ["a"]}]),
        [(INVALID, "spec.hostAliases[0].ip")],
    ),
}


@pytest.mark.parametrize("sentence", BAD)
def test_invalid_pods_are_rejected_with_the_field(sentence: str) -> None:
    body, want = BAD[sentence]
    assert found(body) == sorted(want)


# --- updates ----------------------------------------------------------------------------------


def changed(base: Object, **spec: Any) -> Object:
    body = copy.deepcopy(base)
    body["spec"].update(spec)
    return body


BASE = pod(
    tolerations=[{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9}],
    activeDeadlineSeconds=100,
)
GATED = pod(
    schedulingGates=[{"name": "a"}, {"name": "b"}],
    nodeSelector={"x": "1"},
    affinity={
        "nodeAffinity": {
            REQUIRED_TERMS: {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]
            }
        }
    },
)
NARROWER = {
    "nodeAffinity": {
        REQUIRED_TERMS: {
            "nodeSelectorTerms": [
                {
                    "matchExpressions": [
                        {"key": "a", "operator": "Exists"},
                        {"key": "b", "operator": "Exists"},
                    ]
                }
            ]
        }
    }
}
NEW_TOLERATION = {"key": "new", "operator": "Exists"}

ALLOWED: dict[str, tuple[Object, Object]] = {
    "nothing": (BASE, {}),
    "an image": (
        BASE,
        {"containers": [{**BASE["spec"]["containers"][0], "image": "other:2"}]},
    ),
    "one more toleration": (
        BASE,
        {"tolerations": [*BASE["spec"]["tolerations"], NEW_TOLERATION]},
    ),
    "how long a taint is tolerated": (
        BASE,
        {"tolerations": [{**BASE["spec"]["tolerations"][0], "tolerationSeconds": 1}]},
    ),
    "an earlier deadline": (BASE, {"activeDeadlineSeconds": 50}),
    "one gate fewer": (GATED, {"schedulingGates": [{"name": "b"}]}),
    "a stricter node selector while gated": (GATED, {"nodeSelector": {"x": "1", "y": "2"}}),
    "a stricter node affinity while gated": (GATED, {"affinity": NARROWER}),
}


@pytest.mark.parametrize("sentence", ALLOWED)
def test_allowed_pod_updates(sentence: str) -> None:
    base, change = ALLOWED[sentence]
    assert [str(e) for e in rules.validate(changed(base, **change), base)] == []


REFUSED: dict[str, tuple[Object, Object, list[tuple[str, str]]]] = {
    "its node": (BASE, {"nodeName": "n"}, [(FORBIDDEN, "spec")]),
    "its command": (
        BASE,
        {"containers": [{**BASE["spec"]["containers"][0], "command": ["x"]}]},
        [(FORBIDDEN, "spec")],
    ),
    "its number of containers": (
        BASE,
        {"containers": [*BASE["spec"]["containers"], {"name": "d", "image": "i"}]},
        [(FORBIDDEN, "spec.containers")],
    ),
    "a later deadline": (
        BASE,
        {"activeDeadlineSeconds": 200},
        [(INVALID, "spec.activeDeadlineSeconds")],
    ),
    "no deadline any more": (
        BASE,
        {"activeDeadlineSeconds": None},
        [(INVALID, "spec.activeDeadlineSeconds")],
    ),
    "fewer tolerations": (BASE, {"tolerations": []}, [(FORBIDDEN, "spec.tolerations")]),
    "a new gate": (
        BASE,
        {"schedulingGates": [{"name": "late"}]},
        [(FORBIDDEN, "spec.schedulingGates[0].name")],
    ),
    "its node selector once it may be scheduled": (
        BASE,
        {"nodeSelector": {"x": "1"}},
        [(FORBIDDEN, "spec")],
    ),
    "a looser node selector while gated": (
        GATED,
        {"nodeSelector": {}},
        [(INVALID, "spec.nodeSelector")],
    ),
    "a looser node affinity while gated": (GATED, {"affinity": None}, [(FORBIDDEN, "spec")]),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_forbidden_pod_updates(sentence: str) -> None:
    base, change, want = REFUSED[sentence]
    assert found(changed(base, **change), base) == want


def test_rejected_update_names_the_changed_fields() -> None:
    [error] = rules.validate(changed(BASE, nodeName="n", hostname="h"), BASE)
    assert error.detail.endswith("changed: hostname, nodeName")


def test_validation_changes_nothing() -> None:
    body = GOOD["a pod that uses most of what there is"]
    before = copy.deepcopy(body)
    rules.validate(body, BASE)
    assert body == before

"""Objects to send: for each kind a valid one, random variants, and changes to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from hekla.units.objects import Object

WIDGETS = "differential.example.com"


@dataclass(frozen=True, slots=True)
class Sample:
    """A kind: its path and its objects."""

    plural: str
    api_version: str
    kind: str
    spec: Callable[[Random], Object]
    """Everything but apiVersion, kind and metadata."""
    change: Callable[[Random], Object]
    """A merge patch that is valid on any object of the kind."""
    namespaced: bool = True
    custom: bool = False
    subresources: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    """Field selectors beyond name and namespace."""
    is_counted: bool = False
    """Whether the server writes its status asynchronously."""

    def collection(self, namespace: str) -> str:
        root = "/api/v1" if self.api_version == "v1" else f"/apis/{self.api_version}"
        return (
            f"{root}/namespaces/{namespace}/{self.plural}"
            if self.namespaced
            else (f"{root}/{self.plural}")
        )

    def manifest(self, rng: Random, name: str) -> Object:
        metadata: Object = {"name": name}
        if rng.random() < 0.6:
            metadata["labels"] = {"app": rng.choice("xyz"), "tier": rng.choice("12")}
        if rng.random() < 0.3:
            metadata["annotations"] = {"note": rng.choice(("one", "two", ""))}
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": metadata,
            **self.spec(rng),
        }


def _config_map(rng: Random) -> Object:
    made: Object = {"data": {key: rng.choice(("1", "two", "")) for key in rng.sample("abc", 2)}}
    if rng.random() < 0.2:
        made["binaryData"] = {"bin": "AAECAw=="}
    if rng.random() < 0.1:
        made["immutable"] = True
    return made


def _secret(rng: Random) -> Object:
    made: Object = {"data": {"key": rng.choice(("YQ==", "YmI=", "", "YR==", "YQ==\n"))}}
    if rng.random() < 0.3:
        made["stringData"] = {"other": "plain", "key": "over"}
    if rng.random() < 0.2:
        made["type"] = "example.com/mine"
    return made


def _container(rng: Random, name: str = "main") -> Object:
    made: Object = {"name": name, "image": rng.choice(("busybox", "busybox:1.36", "a/b:latest"))}
    if rng.random() < 0.5:
        made["resources"] = {"requests": {"cpu": rng.choice(("0.5", "100m", "2", 1, "1000m"))}}
        if rng.random() < 0.5:
            made["resources"]["limits"] = {
                "cpu": "2",
                "memory": rng.choice(("1Gi", "1024Mi", "0.5")),
            }
    if rng.random() < 0.4:
        made["env"] = [{"name": "A", "value": "1"}, {"name": "B", "value": rng.choice("23")}]
    if rng.random() < 0.3:
        made["ports"] = [{"containerPort": 80}, {"containerPort": 81, "name": "other"}]
    if rng.random() < 0.2:
        made["readinessProbe"] = {"httpGet": {"path": "/", "port": 80}}
    return made


def _pod_spec(rng: Random, restart: tuple[str, ...] = ("Always", "Never", "OnFailure")) -> Object:
    # A token would be mounted under a random name.
    made: Object = {"containers": [_container(rng)], "automountServiceAccountToken": False}
    if rng.random() < 0.3:
        made["containers"].append(_container(rng, "side"))
    if rng.random() < 0.5:
        made["restartPolicy"] = rng.choice(restart)
    if rng.random() < 0.3:
        made["volumes"] = [
            rng.choice(
                (
                    {"name": "v", "emptyDir": {}},
                    {"name": "v", "emptyDir": {"sizeLimit": "1024Ki"}},
                    {"name": "v", "rbd": {"image": "i", "monitors": ["m"]}},
                    {"name": "v", "configMap": {"name": "a"}},
                    {"name": "v", "secret": {"secretName": "a"}},
                )
            )
        ]
    if rng.random() < 0.2:
        made["tolerations"] = [
            rng.choice(
                (
                    {"key": "k", "operator": "Exists", "effect": "NoSchedule"},
                    {"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
                    {"operator": "Exists"},
                )
            )
        ]
    if rng.random() < 0.2:
        made["nodeSelector"] = rng.choice(({"disk": "ssd"}, {"beta.kubernetes.io/os": "linux"}))
    if rng.random() < 0.2:
        made["terminationGracePeriodSeconds"] = rng.choice((0, 5))
    return made


def _template(rng: Random, restart: tuple[str, ...] = ("Always",)) -> Object:
    spec = _pod_spec(rng, restart)
    if restart != ("Always",):
        spec["restartPolicy"] = rng.choice(restart)
    return {"metadata": {"labels": {"app": "x"}}, "spec": spec}


def _service(rng: Random) -> Object:
    spec: Object = {"ports": [{"port": rng.choice((80, 443))}]}
    if rng.random() < 0.7:
        spec["selector"] = {"app": "x"}
    if rng.random() < 0.4:
        spec["clusterIP"] = "None"
    elif rng.random() < 0.2:
        spec |= rng.choice(
            (
                {"type": "ExternalName", "externalName": "a.example.com"},
                {"ipFamilyPolicy": "PreferDualStack"},
                {"clusterIP": "1.2.3.4"},
                {"ipFamilies": ["IPv6"]},
            )
        )
    if rng.random() < 0.2:
        spec["ports"] = [{"port": 80, "name": "a"}, {"port": 81, "name": "b", "targetPort": "x"}]
    return {"spec": spec}


def _deployment(rng: Random) -> Object:
    return {
        "spec": {
            "replicas": rng.choice((0, 0, 0)),
            "selector": {"matchLabels": {"app": "x"}},
            "template": _template(rng),
        }
    }


def _job(rng: Random) -> Object:
    spec: Object = {"template": _template(rng, ("Never", "OnFailure")), "suspend": True}
    if rng.random() < 0.5:
        spec |= {"parallelism": 2, "completions": 2}
    return {"spec": spec}


def _quota(rng: Random) -> Object:
    return {
        "spec": {
            "hard": {
                "count/widgets.example.com": rng.choice(("5", "10")),
                "count/gadgets.example.com": "64",
            }
        }
    }


def _limits(rng: Random) -> Object:
    return {"spec": {"limits": [{"type": "PersistentVolumeClaim", "max": {"storage": "5Gi"}}]}}


def _role(rng: Random) -> Object:
    verbs = rng.choice((["get"], ["get", "list"], ["*"]))
    return {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}]}


def _binding(rng: Random) -> Object:
    return {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "a"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
    }


def _lease(rng: Random) -> Object:
    made: Object = {"holderIdentity": rng.choice("ab"), "leaseDurationSeconds": 15}
    if rng.random() < 0.3:
        made["renewTime"] = rng.choice(
            ("2026-01-02T15:04:05.000001Z", "2026-01-02T17:04:05.000001+02:00")
        )
    return {"spec": made}


def _account(rng: Random) -> Object:
    return rng.choice(({}, {"automountServiceAccountToken": False}))


def _claim(rng: Random) -> Object:
    amount = rng.choice(("1Gi", "500Mi"))
    return {
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": amount}},
            "storageClassName": "none",
        }
    }


_FORMATTED = (
    ("since", "2026-01-02T15:04:05Z", "yesterday"),
    ("address", "10.1.2.3", "10.1.2"),
    ("id", "11111111-1111-4111-8111-111111111111", "1"),
    ("blob", "YQ==", "YQ"),
    ("every", "1h30m", "5"),
)


def _widget(rng: Random) -> Object:
    spec: Object = {"size": rng.choice((1, 5, 9)), "color": rng.choice(("red", "blue"))}
    if rng.random() < 0.5:
        spec["parts"] = [{"name": "a", "count": 1}, {"name": "b"}]
    if rng.random() < 0.3:
        spec["free"] = {"any": {"thing": [1, "2", None]}}
    if rng.random() < 0.3:
        name, good, bad = rng.choice(_FORMATTED)
        spec[name] = rng.choice((good, good, bad, None))
    return {"spec": spec}


def _podgroup(rng: Random) -> Object:
    return {"spec": {"minMember": rng.choice((1, 2)), "queue": "default"}}


def _priority(rng: Random) -> Object:
    return {"value": 100, "description": rng.choice(("one", "some"))}


def _data(rng: Random) -> Object:
    return {"data": {rng.choice("abc"): rng.choice(("1", "9"))}}


def _label(rng: Random) -> Object:
    return {"metadata": {"labels": {"app": rng.choice("xyz")}}}


def _at(*path: str, values: tuple[Any, ...]) -> Callable[[Random], Object]:
    def change(rng: Random) -> Object:
        made: Any = rng.choice(values)
        for name in reversed(path):
            made = {name: made}
        return dict(made)

    return change


SAMPLES: tuple[Sample, ...] = (
    Sample("configmaps", "v1", "ConfigMap", _config_map, _data),
    Sample(
        "secrets", "v1", "Secret", _secret, _at("data", "key", values=("YQ==", "Yg==")),
        fields=("type=Opaque", "type!=Opaque"),
    ),
    Sample(
        "pods", "v1", "Pod", lambda rng: {"spec": _pod_spec(rng)}, _label,
        subresources=("status",),
        fields=("spec.nodeName=", "status.phase=Pending", "spec.restartPolicy=Always"),
    ),
    Sample("services", "v1", "Service", _service, _label, subresources=("status",)),
    Sample("serviceaccounts", "v1", "ServiceAccount", _account, _label),
    Sample(
        "resourcequotas", "v1", "ResourceQuota", _quota,
        _at("spec", "hard", "count/gadgets.example.com", values=("64", "65")), is_counted=True,
    ),
    Sample("limitranges", "v1", "LimitRange", _limits, _label),
    Sample("persistentvolumeclaims", "v1", "PersistentVolumeClaim", _claim, _label),
    Sample("podtemplates", "v1", "PodTemplate", lambda rng: {"template": _template(rng)}, _label),
    Sample(
        "deployments", "apps/v1", "Deployment", _deployment,
        _at("spec", "minReadySeconds", values=(1, 2, 3)), subresources=("status", "scale"),
    ),
    Sample(
        "replicasets", "apps/v1", "ReplicaSet", _deployment,
        _at("spec", "minReadySeconds", values=(1, 2, 3)), subresources=("status", "scale"),
    ),
    Sample(
        "jobs", "batch/v1", "Job", _job, _at("spec", "backoffLimit", values=(1, 2)),
        subresources=("status",),
    ),
    Sample("roles", "rbac.authorization.k8s.io/v1", "Role", _role, _label),
    Sample("rolebindings", "rbac.authorization.k8s.io/v1", "RoleBinding", _binding, _label),
    Sample(
        "leases", "coordination.k8s.io/v1", "Lease", _lease,
        _at("spec", "holderIdentity", values=("a", "b")),
    ),
    Sample(
        "priorityclasses", "scheduling.k8s.io/v1", "PriorityClass", _priority, _label,
        namespaced=False,
    ),
    Sample(
        "widgets", f"{WIDGETS}/v1", "Widget", _widget, _at("spec", "size", values=(2, 3)),
        custom=True, subresources=("status", "scale"), fields=("spec.color=red",),
    ),
    Sample(
        "podgroups", "scheduling.volcano.sh/v1beta1", "PodGroup", _podgroup,
        _at("spec", "minMember", values=(3, 4)), custom=True, subresources=("status",),
    ),
)  # fmt: skip

WIDGET_CRD: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"widgets.{WIDGETS}"},
    "spec": {
        "group": WIDGETS,
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.size",
                        "statusReplicasPath": ".status.size",
                    },
                },
                "selectableFields": [{"jsonPath": ".spec.color"}],
                "additionalPrinterColumns": [
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "required": ["spec"],
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["size"],
                                "properties": {
                                    "size": {"type": "integer", "minimum": 0, "maximum": 100},
                                    "color": {
                                        "type": "string",
                                        "enum": ["red", "blue", "green"],
                                        "default": "green",
                                    },
                                    "label": {"type": "string", "pattern": "^[a-z]+$"},
                                    "since": {"type": "string", "format": "date-time"},
                                    "address": {"type": "string", "format": "ipv4"},
                                    "id": {"type": "string", "format": "uuid"},
                                    "blob": {"type": "string", "format": "byte"},
                                    "every": {"type": "string", "format": "duration"},
                                    "parts": {
                                        "type": "array",
                                        "maxItems": 5,
                                        "x-kubernetes-list-type": "map",
                                        "x-kubernetes-list-map-keys": ["name"],
                                        "items": {
                                            "type": "object",
                                            "required": ["name"],
                                            "properties": {
                                                "name": {"type": "string", "maxLength": 8},
                                                "count": {"type": "integer", "default": 1},
                                            },
                                        },
                                    },
                                    "free": {
                                        "type": "object",
                                        "x-kubernetes-preserve-unknown-fields": True,
                                    },
                                },
                            },
                            "status": {
                                "type": "object",
                                "properties": {
                                    "size": {"type": "integer"},
                                    "phase": {"type": "string"},
                                },
                            },
                        },
                    }
                },
            }
        ],
    },
}

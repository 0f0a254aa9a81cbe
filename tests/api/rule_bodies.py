"""Objects that the tests of rules check, and the types of errors."""

from __future__ import annotations

import copy
from typing import Any

from hekla.api import defaults, rules
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


def config_map(name: str = "a", **meta: Any) -> Object:
    return obj("v1", "ConfigMap", name, meta)


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

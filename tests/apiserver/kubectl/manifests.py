"""Manifests for kubectl tests."""

from __future__ import annotations

from typing import Any

from hekla.units.objects import Object


def _object(api_version: str, kind: str, name: str, **more: Any) -> Object:
    metadata = {"name": name, **more.pop("metadata", {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **more}


def pod(name: str, labels: dict[str, str] | None = None, **spec: Any) -> Object:
    containers = spec.pop("containers", [{"name": "main", "image": "busybox"}])
    metadata = {"labels": labels} if labels else {}
    return _object("v1", "Pod", name, metadata=metadata, spec={"containers": containers, **spec})


def config_map(name: str, **data: str) -> Object:
    return _object("v1", "ConfigMap", name, data=data)


def deployment(name: str, **spec: Any) -> Object:
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "web", "image": "nginx:1"}]},
    }
    return _object(
        "apps/v1", "Deployment", name,
        spec={"replicas": 1, "selector": {"matchLabels": labels}, "template": template, **spec},
    )  # fmt: skip


def node(name: str) -> Object:
    resources = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "AgentReady", "message": "the agent runs"}
    return _object(
        "v1", "Node", name,
        metadata={"labels": {"kubernetes.io/hostname": name}},
        status={"capacity": resources, "allocatable": resources, "conditions": [ready]},
    )  # fmt: skip


def queue(name: str, **spec: Any) -> Object:
    spec = {"weight": 1, **spec}
    return _object("scheduling.volcano.sh/v1beta1", "Queue", name, spec=spec)


def vcjob(name: str, **spec: Any) -> Object:
    task = {
        "name": "worker",
        "replicas": 2,
        "template": {"spec": {"containers": [{"name": "main", "image": "busybox"}]}},
    }
    return _object(
        "batch.volcano.sh/v1alpha1", "Job", name, spec={"minAvailable": 1, "tasks": [task], **spec}
    )


def definition(plural: str, schema: Object | None = None, **version: Any) -> Object:
    """A CustomResourceDefinition in a separate group."""
    group = f"{plural}.example.com"
    kind = plural.removesuffix("s").title()
    open_schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return _object(
        "apiextensions.k8s.io/v1", "CustomResourceDefinition", f"{plural}.{group}",
        spec={
            "group": group,
            "scope": version.pop("scope", "Namespaced"),
            "names": {
                "plural": plural,
                "singular": plural.removesuffix("s"),
                "kind": kind,
                "shortNames": version.pop("shortNames", []),
            },
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema or open_schema},
                    **version,
                }
            ],
        },
    )  # fmt: skip


def custom(plural: str, name: str, **fields: Any) -> Object:
    """An instance of such a CRD."""
    return _object(f"{plural}.example.com/v1", plural.removesuffix("s").title(), name, **fields)

"""Objects for tests."""

from __future__ import annotations

from typing import Any

from hekla.units.objects import Object


def pod(name: str = "p", namespace: str = "default", **spec: Any) -> Object:
    requests = spec.pop("requests", None)
    limits = spec.pop("limits", None)
    metadata = {"name": name, "namespace": namespace, **spec.pop("metadata", {})}
    container: Object = {"name": "main", "image": "host"}
    if requests or limits:
        container["resources"] = {}
        if requests:
            container["resources"]["requests"] = requests
        if limits:
            container["resources"]["limits"] = limits
    return {"metadata": metadata, "spec": {"containers": [container], **spec}}


def config_map(name: str, namespace: str = "default", **data: str) -> Object:
    return {"metadata": {"name": name, "namespace": namespace}, "data": data}


def namespace(name: str) -> Object:
    return {"metadata": {"name": name}}


def owned_by(owner: Object, *, kind: str, api_version: str = "v1", blocks: bool = False) -> Object:
    """An owner reference."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": blocks,
    }


READY = {"type": "Ready", "status": "True"}

"""Server-side printing: objects as the rows `kubectl get` shows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hekla.apiserver.registry import Served
from hekla.units.clock import Clock

Object = dict[str, Any]


class Tables:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def table(
        self, served: Served, objects: Iterable[Object], metadata: Object, include: str
    ) -> Object:
        rows = [
            {"cells": [obj["metadata"]["name"]], "object": _included(obj, include)}
            for obj in objects
        ]
        return {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "columnDefinitions": [
                {
                    "name": "Name",
                    "type": "string",
                    "format": "name",
                    "description": "",
                    "priority": 0,
                }
            ],
            "rows": rows,
        }


def _included(obj: Object, include: str) -> Object | None:
    if include == "None":
        return None
    if include == "Object":
        return obj
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }

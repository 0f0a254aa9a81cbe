"""Server-side printing: `Table` objects for `kubectl get`.

    age.py        durations such as 5s, 2m30s, 3h12m, 2d
    pods.py       the pod's STATUS, computed from all its containers
    core.py workloads.py cluster.py    the other built-in kinds
    custom.py     columns that a CustomResourceDefinition declares

To add a kind, write a function from object to cells and add it to one of the tables below.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hekla.apiserver.schema.kinds import Served
from hekla.apiserver.tables.cluster import CLUSTER, created_at
from hekla.apiserver.tables.columns import CREATED_AT, NAME, Printer
from hekla.apiserver.tables.core import CORE
from hekla.apiserver.tables.custom import custom_printer
from hekla.apiserver.tables.pods import PODS
from hekla.apiserver.tables.workloads import SCALE, WORKLOADS
from hekla.units.clock import Clock
from hekla.units.objects import Object

PRINTERS: dict[str, Printer] = {"pods": PODS, **CORE, **WORKLOADS, **CLUSTER}
"""By storage name: `pods`, `apps/deployments`."""

_PLAIN = Printer((NAME, CREATED_AT), created_at)


def printer_for(served: Served) -> Printer:
    """Return the printer of a kind."""
    if served.custom:
        return custom_printer(served.columns)
    return PRINTERS.get(served.storage, _PLAIN)


class Tables:
    """Builds `Table` objects. `include` is includeObject: Metadata, Object or None."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def table(
        self, served: Served, objects: Iterable[Object], metadata: Object, include: str
    ) -> Object:
        return self._table(printer_for(served), objects, metadata, include)

    def parts(
        self, served: Served, objects: Iterable[Object], metadata: Object, include: str
    ) -> tuple[Object, Iterator[Object]]:
        """Return a table without rows, and its rows; each is made when it is taken."""
        printer, now = printer_for(served), self._clock.now()
        return (
            self._table(printer, (), metadata, include),
            (_row(printer, obj, now, include) for obj in objects),
        )

    def scale(self, scale: Object, include: str) -> Object:
        """Return a Scale as `kubectl get --subresource=scale` shows it."""
        metadata = {"resourceVersion": scale["metadata"].get("resourceVersion", "")}
        return self._table(SCALE, [scale], metadata, include)

    def _table(
        self, printer: Printer, objects: Iterable[Object], metadata: Object, include: str
    ) -> Object:
        now = self._clock.now()
        return {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "columnDefinitions": [column.definition() for column in printer.columns],
            "rows": [_row(printer, obj, now, include) for obj in objects],
        }


def _row(printer: Printer, obj: Object, now: float, include: str) -> Object:
    row: Object = {"cells": printer.cells(obj, now), "object": _included(obj, include)}
    conditions = printer.conditions(obj)
    if conditions:
        row["conditions"] = conditions
    return row


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

"""Minimal objects are stored or refused, and never cause an internal error."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hekla.apiserver.errors import StatusError
from hekla.apiserver.server import ApiServer
from hekla.apiserver.tables import printer_for
from hekla.units.objects import Object

BARE: dict[str, Object] = {
    "a name only": {},
    "an empty spec": {"spec": {}},
    "null for spec and status": {"spec": None, "status": None},
}


def _label(obj: Object) -> Object:
    obj["metadata"]["labels"] = {"a": "b"}
    return obj


@pytest.mark.parametrize("case", BARE)
async def test_every_kind_accepts_or_refuses_a_minimal_object(server: ApiServer, case: str) -> None:
    # A quota without limits must not block other objects.
    quotas = server.registry.by_kind("v1", "ResourceQuota")
    assert quotas is not None
    await server.resources.create(quotas, "default", {"metadata": {"name": "nothing"}})
    taken = 0
    for served in server.registry.all():
        if served.kind.virtual:
            continue
        namespace = "default" if served.kind.namespaced else ""
        name = f"bare-{case.replace(' ', '-')}"
        body: dict[str, Any] = {"metadata": {"name": name}, **BARE[case]}
        try:
            await server.resources.create(served, namespace, body)
            await server.resources.update(served, namespace, name, _label)
        except StatusError as error:
            if error.code >= 500:
                raise
            continue
        entry = server.store.get(served.storage, served.key(namespace, name))
        assert entry is not None
        printer = printer_for(served)
        assert len(printer.cells(msgspec.json.decode(entry.body), 0.0)) == len(printer.columns)
        await server.resources.delete(served, namespace, name)
        taken += 1
    assert taken > 5

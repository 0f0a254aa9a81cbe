"""Job records: a read-only resource that is answered from the history file.

It has no watch and no selectors: records are selected by query parameters (`hekla.records`).
"""

from __future__ import annotations

import asyncio

from hekla.api import history
from hekla.apiserver import errors
from hekla.apiserver.endpoints.messages import Request, Response
from hekla.apiserver.schema.kinds import Served
from hekla.apiserver.tables import Tables
from hekla.records import requests
from hekla.records.store import HistoryError, HistoryStore
from hekla.units.clock import Clock
from hekla.units.objects import Object


class JobRecords:
    """Serves the history, if this server has one."""

    def __init__(self, store: HistoryStore | None, clock: Clock) -> None:
        self._store = store
        self._tables = Tables(clock)

    async def handle(self, served: Served, request: Request) -> Response:
        """Answer `get` and `list`; everything else is refused."""
        target = request.target
        if target.verb not in ("get", "list") or target.subresource:
            raise errors.method_not_allowed()
        if request.accept.yaml or request.accept.shape == "PartialObjectMetadata":
            raise errors.not_acceptable("job records are served as JSON and as tables")
        if self._store is None:
            raise errors.no_such_path()
        try:
            if target.verb == "get":
                body = await asyncio.to_thread(self._one, target.namespace, target.name)
            else:
                parsed = requests.parse_list(target.namespace, request.query.values)
                page = await asyncio.to_thread(requests.read_page, self._store, parsed)
                body = requests.list_object(page)
        except requests.BadRequest as error:
            raise errors.bad_request(str(error)) from error
        except HistoryError as error:
            raise errors.StatusError(503, "ServiceUnavailable", str(error)) from error
        if request.accept.shape == "Table":
            return Response.of(self._table(served, body, request))
        return Response.of(body)

    def _one(self, namespace: str, name: str) -> Object:
        assert self._store is not None
        record = requests.read_one(self._store, namespace, name)
        if record is None:
            raise errors.not_found(history.GROUP, history.PLURAL, name)
        return history.to_object(record)

    def _table(self, served: Served, body: Object, request: Request) -> Object:
        is_list = "items" in body
        listed, metadata = (body["items"], body["metadata"]) if is_list else ([body], {})
        include = request.query.get("includeObject") or "Metadata"
        return self._tables.table(served, listed, metadata, include)

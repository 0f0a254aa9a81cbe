"""Job records over HTTPS from the controllers' port, for clusters whose API server has none.

The path and the JSON are those of the embedded API server. The token is reviewed before, for the
verb and the namespace that `attributes_of` derives from the same path.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from hekla.api import history
from hekla.records import requests
from hekla.records.requests import BadRequest
from hekla.records.store import HistoryError, HistoryStore
from hekla.units.objects import Object

PREFIX = f"/apis/{history.API}/"
MAX_QUERY = 8192
STANDBY = (
    "this replica of the controllers is on standby and has no history; ask the leader, which "
    "`kubectl -n volcano-system get lease vc-controller-manager` names"
)

Answer = tuple[int, Object]


def target_of(path: str) -> tuple[str, str] | None:
    """Return namespace and name of a path, each empty if it has none; None for any other path."""
    if not path.startswith(PREFIX):
        return None
    match path.removeprefix(PREFIX).split("/"):
        case [history.PLURAL]:
            return "", ""
        case ["namespaces", namespace, history.PLURAL] if namespace:
            return namespace, ""
        case ["namespaces", namespace, history.PLURAL, name] if namespace and name:
            return namespace, name
    return None


def attributes_of(path: str) -> Object | None:
    """Return the resource attributes of an access review; None if the path is no resource."""
    target = target_of(path)
    if target is None:
        return None
    namespace, name = target
    attributes = {
        "verb": "get" if name else "list",
        "group": history.GROUP,
        "version": history.VERSION,
        "resource": history.PLURAL,
        "namespace": namespace,
    }
    return {**attributes, "name": name} if name else attributes


class HistoryService:
    """Answers paths of job records, and passes all others on, as an ASGI application."""

    def __init__(self, app: Any, store: HistoryStore, is_leader: Callable[[], bool]) -> None:
        self._app = app
        self._store = store
        self._is_leader = is_leader

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(PREFIX):
            await self._app(scope, receive, send)
            return
        status, body = await self._answer(scope)
        content = msgspec.json.encode(body)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(content)).encode()),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        shown = b"" if scope["method"] == "HEAD" else content
        await send({"type": "http.response.body", "body": shown})

    async def _answer(self, scope: Any) -> Answer:
        target, raw = target_of(scope["path"]), scope["query_string"]
        if scope["method"] not in ("GET", "HEAD"):
            return _failure(405, "MethodNotAllowed", "job records are read-only")
        if target is None:
            return _failure(404, "NotFound", "the server could not find the requested resource")
        if not self._is_leader():
            return _failure(503, "ServiceUnavailable", STANDBY)
        if len(raw) > MAX_QUERY:
            return _failure(400, "BadRequest", f"the query is longer than {MAX_QUERY} bytes")
        try:
            return await asyncio.to_thread(
                self._read, target, dict(parse_qsl(raw.decode("latin1")))
            )
        except BadRequest as error:
            return _failure(400, "BadRequest", str(error))
        except HistoryError as error:
            return _failure(503, "ServiceUnavailable", str(error))

    def _read(self, target: tuple[str, str], query: dict[str, str]) -> Answer:
        namespace, name = target
        if not name:
            request = requests.parse_list(namespace, query)
            return 200, requests.list_object(requests.read_page(self._store, request))
        record = requests.read_one(self._store, namespace, name)
        if record is None:
            return _failure(404, "NotFound", f'jobrecords.{history.GROUP} "{name}" not found')
        return 200, history.to_object(record)


def _failure(code: int, reason: str, message: str) -> Answer:
    return code, {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }

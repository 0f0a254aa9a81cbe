"""Answers to requests for job records: the same JSON from the embedded server and the controllers.

GET /apis/history.hekla.io/v1/[namespaces/NS/]jobrecords[/NAME]?user=alice&limit=100
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from hekla.api import history
from hekla.api.history import JobRecord
from hekla.records.store import HistoryStore, Page, Position, RecordFilter
from hekla.units.objects import Object
from hekla.units.timestamps import TimestampError, parse_time

MAX_PAGE = 500
"""The most records in one answer; a list without a limit has this one."""
MAX_VALUE = 1024
PARAMETERS = ("name", "user", "queue", "phase", "since")
_PAGING = ("limit", "continue")
_IGNORED = frozenset(
    {"resourceVersion", "resourceVersionMatch", "timeoutSeconds", "pretty", "includeObject"}
)


class BadRequest(ValueError):
    """A request with an invalid parameter."""


@dataclass(frozen=True, slots=True)
class ListRequest:
    """A parsed request for a page of records."""

    wanted: RecordFilter
    limit: int
    after: Position | None = None


def parse_list(namespace: str, query: Mapping[str, str]) -> ListRequest:
    """Return the request that query parameters ask for."""
    for key, value in query.items():
        if key not in (*PARAMETERS, *_PAGING) and key not in _IGNORED and value:
            raise BadRequest(
                f"job records cannot be selected by {key!r}; parameters are {', '.join(PARAMETERS)}"
            )
        if len(value) > MAX_VALUE:
            raise BadRequest(f"query parameter {key} is longer than {MAX_VALUE} characters")
    phases = tuple(word.strip() for word in query.get("phase", "").split(",") if word.strip())
    wanted = RecordFilter(
        namespace=namespace,
        name=query.get("name", ""),
        user=query.get("user", ""),
        queue=query.get("queue", ""),
        phases=phases[:20],
        since=_since(query.get("since", "")),
    )
    return ListRequest(wanted, _limit(query.get("limit", "")), _position(query.get("continue", "")))


def _since(text: str) -> float | None:
    if not text:
        return None
    try:
        return parse_time(text)
    except TimestampError as error:
        raise BadRequest(f"query parameter since: {error}") from error


def _limit(text: str) -> int:
    if not text:
        return MAX_PAGE
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise BadRequest(f"query parameter limit={text!r} is not a whole number")
    return min(int(text), MAX_PAGE) or MAX_PAGE


def _position(token: str) -> Position | None:
    if not token:
        return None
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(token), type=tuple[float, str])
    except (msgspec.MsgspecError, binascii.Error, ValueError) as error:
        raise BadRequest("query parameter continue is not the token of a page") from error


def _token(position: Position | None) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode() if position else ""


def list_object(page: Page) -> Object:
    """Return a page as an API list."""
    metadata: Object = {"resourceVersion": ""}
    if token := _token(page.position):
        metadata["continue"] = token
    return {
        "apiVersion": history.API,
        "kind": f"{history.KIND}List",
        "metadata": metadata,
        "items": [history.to_object(record) for record in page.records],
    }


def read_page(store: HistoryStore, request: ListRequest) -> Page:
    """Return the page that a request asks for."""
    return store.page(request.wanted, limit=request.limit, after=request.after)


def read_one(store: HistoryStore, namespace: str, id: str) -> JobRecord | None:
    """Return the record with an id; None if there is none."""
    found = store.page(RecordFilter(namespace=namespace, id=id), limit=1).records
    return found[0] if found else None

"""Bearer tokens for the pages of a component, as an ASGI middleware.

The pages name jobs, queues and nodes, so a reader needs a token and the right to read the path.
Health checks stay open: a kubelet sends no token.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any

MAX_TOKEN = 16_384


@dataclass(frozen=True, slots=True)
class Decision:
    """The HTTP status of a request, and the reason if it is refused."""

    status: int
    reason: str = ""


Authorize = Callable[[str, str, str], Awaitable[Decision]]
"""(token, verb, path) -> decision"""


class TokenRequired:
    """Passes a request on if its token may read the path."""

    def __init__(self, app: Any, authorize: Authorize, *, open_paths: Collection[str]) -> None:
        self._app = app
        self._authorize = authorize
        self._open_paths = frozenset(open_paths)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] in self._open_paths:
            await self._app(scope, receive, send)
            return
        decision = await self._decide(scope)
        if decision.status == 200:
            await self._app(scope, receive, send)
            return
        body = f"{decision.reason}\n".encode()
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
        ]
        if decision.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        await send({"type": "http.response.start", "status": decision.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _decide(self, scope: Any) -> Decision:
        token = _bearer_token(scope["headers"])
        if not token:
            return Decision(401, f"{scope['path']} needs a bearer token of the cluster")
        return await self._authorize(token, scope["method"].lower(), scope["path"])


def _bearer_token(headers: Collection[tuple[bytes, bytes]]) -> str:
    given = [value for name, value in headers if name == b"authorization"]
    if len(given) != 1 or len(given[0]) > MAX_TOKEN:
        return ""
    scheme, _, token = given[0].partition(b" ")
    if scheme.lower() != b"bearer" or not token.isascii():
        return ""
    return token.strip().decode()

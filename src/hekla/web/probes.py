"""`/healthz`, `/readyz`, `/metrics` and JSON pages of a component, as an ASGI application.

Only GET and HEAD, no bodies: these ports are open to the cluster's network. A check returns an
error message, or an empty string.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from hekla.web.metrics import CONTENT_TYPE

Check = Callable[[], str]
Render = Callable[[], Awaitable[bytes]]
Page = Callable[[], bytes]


class Probes:
    """Serves checks, metrics and pages."""

    def __init__(
        self,
        checks: Mapping[str, Check],
        metrics: Render | None = None,
        pages: Mapping[str, Page] | None = None,
    ) -> None:
        self._checks = {f"/{name}": check for name, check in checks.items()}
        self._metrics = metrics
        self._pages = {f"/{name}": page for name, page in (pages or {}).items()}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        status, kind, body = await self._answer(scope["method"], scope["path"])
        headers = [
            (b"content-type", kind.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send(
            {"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body}
        )

    async def _answer(self, method: str, path: str) -> tuple[int, str, bytes]:
        plain = "text/plain; charset=utf-8"
        if method not in ("GET", "HEAD"):
            return 405, plain, b"only GET and HEAD\n"
        if path == "/metrics" and self._metrics is not None:
            return 200, CONTENT_TYPE, await self._metrics()
        if path in self._pages:
            return 200, "application/json", self._pages[path]()
        check = self._checks.get(path)
        if check is None:
            return 404, plain, b"not found\n"
        wrong = check()
        return (503, plain, f"{wrong}\n".encode()) if wrong else (200, plain, b"ok\n")

"""Raw HTTP requests with one user's token; nothing is retried, checked or decoded."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
from yarl import URL

from hekla.kube import kubeconfig

TIMEOUT_S = 30.0
MAX_RESPONSE = 4 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """The status (0 for no answer) and the beginning of the body."""

    status: int
    body: bytes

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


class User:
    """A person with a kubeconfig."""

    def __init__(self, config: Path) -> None:
        self.config = kubeconfig.load(config)
        self.namespace = self.config.namespace
        self.token = self.config.credentials.current().headers[0][1].removeprefix("Bearer ")
        tls = ssl.create_default_context(cadata=self.config.ca_pem)
        self._tls = tls

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=64)
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
            auto_decompress=False,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._session.close()

    def url(self, path: str) -> URL:
        """Return the URL of a path, which is sent as it is."""
        return URL(self.config.server + path, encoded=True)

    def open(self, path: str) -> Any:
        """Open a response and leave its body unread."""
        given = {"Authorization": f"Bearer {self.token}"}
        return self._session.get(self.url(path), headers=given)

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        media: str = "application/json",
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Send a request; `body` is sent as JSON unless it is bytes."""
        given = {"Authorization": f"Bearer {self.token}", **(headers or {})}
        options: dict[str, Any] = {}
        if isinstance(body, bytes):
            options["data"] = body
            given.setdefault("Content-Type", media)
        elif body is not None:
            options["json"] = body
            if media != "application/json":
                given["Content-Type"] = media
        try:
            async with self._session.request(
                method, self.url(path), headers=given, **options
            ) as response:
                return Answer(response.status, await response.content.read(MAX_RESPONSE))
        except (TimeoutError, aiohttp.ClientError, ValueError, OSError):
            return Answer(0, b"")

    async def stream(self, path: str, *, seconds: float) -> Answer:
        """Read from a stream for some time; what was read is the answer."""
        given = {"Authorization": f"Bearer {self.token}"}
        seen = b""
        try:
            async with self._session.get(self.url(path), headers=given) as response:
                try:
                    async with asyncio.timeout(seconds):
                        async for chunk in response.content.iter_any():
                            seen = (seen + chunk)[:MAX_RESPONSE]
                except TimeoutError:
                    pass
                return Answer(response.status, seen)
        except (aiohttp.ClientError, OSError):
            return Answer(0, seen)

"""uvicorn's HTTP protocol with limits on the size and the time of request headers.

A client that sends a byte a minute, or endless headers, is disconnected.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADER_TIMEOUT_S = 10.0
MAX_HEADER_BYTES = 64 * 1024


class BoundedProtocol(HttpToolsProtocol):
    _deadline: asyncio.TimerHandle | None = None
    _header_bytes = 0
    _tls: dict[object, object] | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and (certificate := tls.getpeercert()):
            # The name of the certificate that the client proved, as in ASGI's TLS extension.
            subject = dict(pair for part in certificate["subject"] for pair in part)
            self._tls = {"client_cert_name": subject.get("commonName", "")}
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._tls:
            self.scope["extensions"] = {"tls": self._tls}
        self._header_bytes = 0
        self._arm()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._disarm()
        super().on_headers_complete()

    def shutdown(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            # No request is active. A TLS shutdown would wait for the client.
            self.transport.abort()
        else:
            super().shutdown()

    def _unsupported_upgrade_warning(self) -> None:
        """Suppress the warning: kubectl tries SPDY after each refused stream."""

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > MAX_HEADER_BYTES:
            raise ValueError(f"request headers exceed {MAX_HEADER_BYTES} bytes")

    def _arm(self) -> None:
        self._disarm()
        self._deadline = self.loop.call_later(HEADER_TIMEOUT_S, self._expire)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expire(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()

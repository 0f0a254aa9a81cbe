"""uvicorn's HTTP protocol with limits on the size and the time of request headers.

A client that sends a byte a minute, or endless headers, is disconnected.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hekla.web.connections import Connections

HEADER_TIMEOUT_S = 10.0
MAX_HEADER_BYTES = 64 * 1024


class BoundedProtocol(HttpToolsProtocol):
    gate: Connections | None = None
    """Limits; None for connections of this process and of the administrator's socket."""
    address = ""
    _deadline: asyncio.TimerHandle | None = None
    _header_bytes = 0
    _tls: dict[object, object] | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if self.gate is not None:
            self.gate.made(self)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and (certificate := tls.getpeercert()):
            # The name of the certificate that the client proved, as in ASGI's TLS extension.
            subject = dict(pair for part in certificate["subject"] for pair in part)
            self._tls = {"client_cert_name": subject.get("commonName", "")}
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        if self.gate is not None:
            self.gate.lost(self)
            self.gate.release(self.address)
            self.gate = None
        super().connection_lost(exc)

    def handle_websocket_upgrade(self) -> None:
        if self.gate is not None:  # from here on another protocol has the connection
            self.gate.lost(self)
            self.gate.release(self.address)
            self.gate = None
        super().handle_websocket_upgrade()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.gate is not None:
            self.gate.unread(self, self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.gate is not None:
            self.gate.read(self)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.gate is not None and not self.pipeline:
            self.gate.idle(self)

    def abort(self) -> None:
        self.transport.abort()

    def __str__(self) -> str:
        return f"client {self.client[0]}:{self.client[1]}" if self.client else "client"

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
        if self.gate is not None:
            self.gate.active(self)
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

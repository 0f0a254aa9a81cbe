"""An embedded uvicorn server: TLS, limits, no signal handlers, graceful shutdown.

    async with WebServer(app, certificate=crt, key=key) as server:
        print(server.address)

The embedding program handles signals. Long-running responses must end when their owner closes:
uvicorn waits a moment, then closes them. Only public content (probes, metrics) may be served
without
a certificate.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import uvicorn

from hekla.web.protocol import BoundedProtocol

IDLE_TIMEOUT_S = 75
STOP_TIMEOUT_S = 2
BACKLOG = 1024
MAX_MESSAGE = 1 << 20


def _is_relevant(record: logging.LogRecord) -> bool:
    """Drop uvicorn's error about a WebSocket that was refused by a plain response."""
    return record.msg != "ASGI callable returned without completing handshake."


logging.getLogger("uvicorn.error").addFilter(_is_relevant)


class WebServer:
    """An ASGI application with a listening socket."""

    def __init__(
        self,
        app: Any,
        *,
        certificate: Path | None,
        key: Path | None,
        client_ca: Path | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self._host = host
        self._scheme = "http" if certificate is None else "https"
        self._wanted_port = port
        self._uvicorn = _Uvicorn(
            uvicorn.Config(
                app,
                http=BoundedProtocol,
                ws="websockets-sansio",
                ws_max_size=MAX_MESSAGE,
                ws_max_queue=16,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                date_header=False,
                timeout_keep_alive=IDLE_TIMEOUT_S,
                timeout_graceful_shutdown=STOP_TIMEOUT_S,
                ssl_certfile=certificate,
                ssl_keyfile=key,
                ssl_ca_certs=None if client_ca is None else str(client_ca),
                ssl_cert_reqs=ssl.CERT_NONE if client_ca is None else ssl.CERT_OPTIONAL,
            )
        )

    @property
    def address(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{self._scheme}://{host}:{self.port}"

    def reload(self, certificate: Path, key: Path) -> None:
        """Use new certificates for new connections."""
        context = self._uvicorn.config.ssl
        assert context is not None
        context.load_cert_chain(certificate, key)

    async def __aenter__(self) -> Self:
        listener = _listen(self._host, self._wanted_port)
        self.port: int = listener.getsockname()[1]
        self._task = asyncio.create_task(self._uvicorn.serve(sockets=[listener]), name="web")
        while not self._uvicorn.started:
            if self._task.done():
                await self._task
                raise RuntimeError("the server stopped while starting")
            await asyncio.sleep(0.002)
        return self

    async def dial(self) -> socket.socket:
        """Open an in-process connection, without port and TLS."""
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        ours.setblocking(False)
        web = self._uvicorn
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: BoundedProtocol(web.config, web.server_state, web.lifespan.state), theirs
        )
        return ours

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._uvicorn.should_exit = True
        await asyncio.wait([self._task])
        # A client that ignores the TLS shutdown would hold the socket for half a minute, after the
        # end of the event loop.
        for connection in list(self._uvicorn.server_state.connections):
            transport = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()
        await asyncio.sleep(0)


class _Uvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle only for sockets declared as TCP; otherwise each response waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise OSError(
            error.errno,
            f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}; try another --port",
        ) from error
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener

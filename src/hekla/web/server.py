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
import errno
import logging
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import uvicorn

from hekla.web.connections import ConnectionLimits, Connections
from hekla.web.protocol import BoundedProtocol

IDLE_TIMEOUT_S = 75
STOP_TIMEOUT_S = 2
BACKLOG = 1024
MAX_MESSAGE = 1 << 20
ACCEPT_PAUSE_S = 0.05


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
        limits: ConnectionLimits | None = None,
        admin_socket: Path | None = None,
        else_any_port: bool = False,
    ) -> None:
        """`admin_socket` is a Unix socket without TLS and limits, for its owner only.

        With `else_any_port`, a port that is taken is replaced by a free one.
        """
        self._host = host
        self._scheme = "http" if certificate is None else "https"
        self._wanted_port = port
        self._else_any_port = else_any_port
        self._admin_socket = admin_socket
        self.connections = Connections(limits)
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
            ),
            self.connections,
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
        listener = _listen(self._host, self._wanted_port, else_any_port=self._else_any_port)
        self.port: int = listener.getsockname()[1]
        sockets = [listener]
        if self._admin_socket is not None:
            sockets.append(_listen_private(self._admin_socket))
        self._task = asyncio.create_task(self._uvicorn.serve(sockets=sockets), name="web")
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
        await asyncio.get_running_loop().connect_accepted_socket(self._uvicorn.new_protocol, theirs)
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
    """uvicorn accepts any number of connections and waits a minute for each TLS handshake. So
    connections are accepted here.
    """

    def __init__(self, config: uvicorn.Config, connections: Connections) -> None:
        super().__init__(config)
        self._connections = connections
        self._accepting: list[asyncio.Task[None]] = []
        self._handshakes: set[asyncio.Task[None]] = set()

    def new_protocol(self) -> BoundedProtocol:
        return BoundedProtocol(self.config, self.server_state, self.lifespan.state)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.servers = []
        self._accepting = [asyncio.create_task(self._accept(each)) for each in sockets or ()]
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in (*self._accepting, *self._handshakes):
            task.cancel()
        await asyncio.gather(*self._accepting, *self._handshakes, return_exceptions=True)
        await super().shutdown(sockets)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        is_private = listener.family == socket.AF_UNIX
        while True:
            try:
                accepted, peer = await loop.sock_accept(listener)
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._connections.make_room()
                if error.errno != errno.ECONNABORTED:  # the client was faster
                    await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            if is_private:
                serving = self._serve_private(accepted)
            elif self._connections.admit(accepted, peer[0]):
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                serving = self._serve_public(accepted, peer[0])
            else:
                accepted.close()
                continue
            task = asyncio.create_task(serving)
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _serve_public(self, accepted: socket.socket, address: str) -> None:
        """Make the handshake within its time, then hand the connection to the protocol."""
        protocol = self.new_protocol()
        protocol.gate, protocol.address = self._connections, address
        tls: dict[str, Any] = {}
        if self.config.ssl is not None:
            seconds = self._connections.limits.handshake_s
            tls = {"ssl": self.config.ssl, "ssl_handshake_timeout": seconds}
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol, accepted, **tls
            )
        except (OSError, asyncio.CancelledError):
            accepted.close()
            if protocol.gate is not None:
                self._connections.release(address)
        finally:
            self._connections.end_handshake(accepted)

    async def _serve_private(self, accepted: socket.socket) -> None:
        await asyncio.get_running_loop().connect_accepted_socket(self.new_protocol, accepted)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listen_private(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


def _listen(host: str, port: int, *, else_any_port: bool = False) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle only for sockets declared as TCP; otherwise each response waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE and else_any_port:
            return _listen(host, 0)
        raise OSError(
            error.errno,
            f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}; try another --port",
        ) from error
    listener.setblocking(False)
    return listener

"""The synchronous transport: one http.client connection, TLS, limits and retries.

Note: servers close idle connections. The socket is checked before reuse, so that a create does not
fail half-way. This module imports neither asyncio nor numpy.
"""

from __future__ import annotations

import http.client
import select
import socket
import ssl
import time
import zlib
from collections.abc import Callable, Iterator
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from hekla import __version__
from hekla.kube.calls import Call
from hekla.kube.credentials import Auth, ClientCertificate, tls_context
from hekla.kube.errors import (
    ApiError,
    ConnectionLost,
    KubeError,
    ProtocolError,
    ResponseTooLarge,
    Timeout,
    TlsError,
    Unauthorized,
    error_from_status,
)
from hekla.kube.kubeconfig import ClusterConfig
from hekla.kube.retries import RetryPolicy

R = TypeVar("R")

MAX_BODY_BYTES = 256 * 1024 * 1024
MAX_ERROR_BYTES = 1024 * 1024
_CHUNK_BYTES = 64 * 1024


class SyncTransport:
    """Sends calls to one API server over one connection; not thread-safe."""

    def __init__(
        self,
        config: ClusterConfig,
        *,
        component: str = "cli",
        random: Random | None = None,
        retry: RetryPolicy | None = None,
        timeout_s: float = 30.0,
        max_body_bytes: int = MAX_BODY_BYTES,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.config = config
        self._random = random or Random()
        self._retry = retry or RetryPolicy()
        self._timeout_s = timeout_s
        self._max_body_bytes = max_body_bytes
        self._sleep = sleep
        self._server = urlsplit(config.server)
        self._user_agent = f"hekla/{__version__} ({component})"
        # Compression on loopback only costs CPU.
        self._encoding = "identity" if config.is_loopback else "gzip"
        self._connection: http.client.HTTPConnection | None = None
        self._tls: tuple[ClientCertificate | None, ssl.SSLContext] | None = None

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def send(self, call: Call) -> bytes:
        """Send a call and return the response body; raise errors by status."""

        def once(auth: Auth) -> bytes:
            connection = self._open(auth)
            try:
                response = self._exchange(connection, call, auth, self._timeout_s)
                body = _read(call, response, self._max_body_bytes)
                if response.will_close:
                    self.close()
                return body
            except ApiError:
                raise
            except BaseException:
                self.close()  # unread bytes would be taken for the next response
                raise

        return self._with_retries(call, once)

    @property
    def timeout_s(self) -> float:
        """The timeout of one wait on the socket."""
        return self._timeout_s

    def stream(
        self,
        call: Call,
        *,
        open_timeout_s: float | None = None,
        idle_timeout_s: float | None = None,
    ) -> SyncStream:
        """Open a stream over a separate connection; see `Transport.stream` for the timeouts."""

        def once(
            auth: Auth,
        ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
            connection = self._new_connection(auth)
            try:
                response = self._exchange(connection, call, auth, open_timeout_s)
                if connection.sock is not None:
                    connection.sock.settimeout(idle_timeout_s)
                return connection, response
            except BaseException:
                connection.close()
                raise

        return SyncStream(call, *self._with_retries(call, once))

    def _with_retries(self, call: Call, once: Callable[[Auth], R]) -> R:
        tries = 0
        was_rejected = False
        while True:
            auth = self.config.credentials.current()
            tries += 1
            try:
                return once(auth)
            except Unauthorized:
                if was_rejected or not self.config.credentials.reject(auth):
                    raise
                was_rejected = True
                continue
            except KubeError as error:
                delay_s = self._retry.delay_s(call, tries, error, self._random)
                if delay_s is None:
                    raise
            self._sleep(delay_s)

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        call: Call,
        auth: Auth,
        timeout_s: float | None,
    ) -> http.client.HTTPResponse:
        _connect(call, connection, self.config.place)
        connection.sock.settimeout(timeout_s)
        try:
            connection.putrequest(
                call.method, self._server.path.rstrip("/") + call.target, skip_accept_encoding=True
            )
            connection.putheader("User-Agent", self._user_agent)
            connection.putheader("Accept", call.accept)
            connection.putheader("Accept-Encoding", self._encoding)
            for name, value in auth.headers:
                connection.putheader(name, value)
            if call.body is not None:
                connection.putheader("Content-Type", call.content_type)
            if call.body is not None or call.method in ("POST", "PUT", "PATCH"):
                connection.putheader("Content-Length", str(len(call.body or b"")))
            connection.endheaders(call.body)
            response = connection.getresponse()
        except _SOCKET_ERRORS as error:
            raise _client_error(call, error) from error
        if response.status >= 300:
            body = _read(call, response, MAX_ERROR_BYTES)
            if response.will_close:
                connection.close()
            raise error_from_status(
                body,
                http_status=response.status,
                retry_after=response.headers.get("Retry-After"),
                what=str(call),
            )
        return response

    def _open(self, auth: Auth) -> http.client.HTTPConnection:
        if self._tls is not None and self._tls[0] != auth.certificate:
            self.close()  # an exec plugin returned another certificate
        if self._connection is not None and _is_stale(self._connection):
            self.close()
        if self._connection is None:
            self._connection = self._new_connection(auth)
        return self._connection

    def _new_connection(self, auth: Auth) -> http.client.HTTPConnection:
        host, port = self._server.hostname or "", self._server.port
        if self._server.scheme == "http":
            return http.client.HTTPConnection(host, port or 80, timeout=self._timeout_s)
        if self._tls is None or self._tls[0] != auth.certificate:
            context = tls_context(
                self.config.ca_pem,
                insecure=self.config.insecure,
                certificate=auth.certificate,
            )
            self._tls = (auth.certificate, context)
        name = self.config.tls_server_name
        return _TlsConnection(host, port or 443, self._timeout_s, self._tls[1], name)


class SyncStream:
    """An open response: iterate over chunks; leaving the context closes the connection."""

    def __init__(
        self,
        call: Call,
        connection: http.client.HTTPConnection,
        response: http.client.HTTPResponse,
    ) -> None:
        self._call = call
        self._connection = connection
        self._response = response
        self._unzip = _unzipper(response)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._response.close()
        self._connection.close()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        while True:
            try:
                chunk = self._response.read1(_CHUNK_BYTES)
            except _SOCKET_ERRORS as error:
                raise _client_error(self._call, error) from error
            if not chunk:
                raise StopIteration
            if self._unzip is not None:
                chunk = self._unzip.decompress(chunk)
            if chunk:
                return chunk


class _TlsConnection(http.client.HTTPConnection):
    """http.client cannot verify a server name that differs from the address."""

    default_port = 443

    def __init__(
        self,
        host: str,
        port: int,
        timeout_s: float,
        context: ssl.SSLContext,
        server_name: str | None,
    ) -> None:
        super().__init__(host, port, timeout=timeout_s)
        self._context = context
        self._server_name = server_name or host

    def connect(self) -> None:
        super().connect()
        plain = self.sock
        try:
            self.sock = self._context.wrap_socket(plain, server_hostname=self._server_name)
        except BaseException:
            plain.close()
            raise


_SOCKET_ERRORS = (OSError, http.client.HTTPException)


def _connect(call: Call, connection: http.client.HTTPConnection, place: str) -> None:
    if connection.sock is not None:
        return
    try:
        connection.connect()
    except ssl.SSLError as error:
        raise TlsError(f"{call}: TLS was refused: {str(error)[:300]}") from error
    except OSError as error:
        shown = error.strerror or str(error) or type(error).__name__
        text = f"{call}: cannot connect to {place}: {shown[:300]}"
        raise ConnectionLost(text, established=False) from error


def _is_stale(connection: http.client.HTTPConnection) -> bool:
    """Return whether the server closed the connection: it is readable before a request."""
    if connection.sock is None:
        return True
    try:
        connection.sock.settimeout(0.0)
        if isinstance(connection.sock, ssl.SSLSocket):
            # TLS cannot peek; check the socket below.
            return bool(select.select([connection.sock.fileno()], [], [], 0)[0])
        return connection.sock.recv(1, socket.MSG_PEEK) is not None
    except (BlockingIOError, InterruptedError):
        return False
    except OSError:
        return True
    finally:
        if connection.sock is not None and connection.sock.fileno() >= 0:
            connection.sock.settimeout(connection.timeout)


def _client_error(call: Call, error: Exception) -> KubeError:
    match error:
        case TimeoutError():
            return Timeout(f"{call}: no response in time")
        case ssl.SSLError():
            return TlsError(f"{call}: TLS was refused: {str(error)[:300]}")
        case http.client.RemoteDisconnected() | http.client.IncompleteRead() | OSError():
            return ConnectionLost(f"{call}: the connection was lost")
        case _:
            return ProtocolError(f"{call}: not an HTTP response: {type(error).__name__}")


def _unzipper(response: http.client.HTTPResponse) -> Any:
    # 16 + the window size: zlib with a gzip header.
    return zlib.decompressobj(31) if response.headers.get("Content-Encoding") == "gzip" else None


def _read(call: Call, response: http.client.HTTPResponse, limit: int) -> bytes:
    unzip = _unzipper(response)
    chunks: list[bytes] = []
    size = 0
    try:
        while chunk := response.read(_CHUNK_BYTES):
            if unzip is not None:
                chunk = unzip.decompress(chunk, limit + 1 - size)
            size += len(chunk)
            if size > limit or (unzip is not None and unzip.unconsumed_tail):
                raise ResponseTooLarge(f"{call}: the response is larger than {limit} bytes")
            chunks.append(chunk)
    except zlib.error as error:
        raise ProtocolError(f"{call}: the response does not decompress") from error
    except _SOCKET_ERRORS as error:
        raise _client_error(call, error) from error
    return b"".join(chunks)

"""The synchronous client of the command line: the same verbs, over http.client, quick to import.

    with SyncClient(kubeconfig.load()) as client:
        for job in client.list(JOBS, namespace="ml"): ...

What a newcomer gets wrong: this module must not import aiohttp, asyncio or numpy, nor anything that
does; a test checks it. `vcctl job list` should not pay half a second to print ten lines.

Calls, answers, errors, credentials and retry rules are those of `client`; only the socket differs.
Time limits here bound each wait on the socket, not a whole request.
"""

from __future__ import annotations

import http.client
import select
import socket
import ssl
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from random import Random
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, cast
from urllib.parse import urlsplit

from hekla import __version__
from hekla.kube import calls
from hekla.kube.answers import Listing, WatchEvent, WatchReader, decode, decode_list
from hekla.kube.calls import Body, Call, PatchKind, Propagation, Query
from hekla.kube.credentials import ClientCertificate, Proof, tls_context
from hekla.kube.errors import (
    ApiError,
    ConnectionLost,
    Gone,
    KubeError,
    NotFound,
    ProtocolError,
    ResponseTooLarge,
    Timeout,
    TlsError,
    Unauthorized,
    error_from_status,
)
from hekla.kube.kubeconfig import ClusterConfig
from hekla.kube.resources import Obj, Resource
from hekla.kube.retries import RetryPolicy

T = TypeVar("T")
R = TypeVar("R")

PAGE_SIZE = 500
MAX_BODY_BYTES = 256 * 1024 * 1024
MAX_ERROR_BYTES = 1024 * 1024
_CHUNK_BYTES = 64 * 1024


class SyncClient:
    """One API server, one identity, one connection. Not for several threads at once."""

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
        field_manager: str | None = None,
    ) -> None:
        self.config = config
        self.namespace = config.namespace
        self._random = random or Random()
        self._retry = retry or RetryPolicy()
        self._timeout_s = timeout_s
        self._max_body_bytes = max_body_bytes
        self._sleep = sleep
        self._field_manager = field_manager
        self._server = urlsplit(config.server)
        self._user_agent = f"hekla/{__version__} ({component})"
        # Squeezing bytes that never leave the machine only burns CPU on both ends.
        self._encoding = "identity" if config.is_loopback else "gzip"
        self._connection: http.client.HTTPConnection | None = None
        self._tls: tuple[ClientCertificate | None, ssl.SSLContext] | None = None

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
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # Verbs

    def get(self, resource: Resource[T], name: str, *, namespace: str | None = None) -> T:
        """One object; NotFound if there is none."""
        call = calls.read(resource, name, namespace=self._in(resource, namespace))
        return self._decoded(resource, call)

    def find(self, resource: Resource[T], name: str, *, namespace: str | None = None) -> T | None:
        """One object, or None if there is none."""
        try:
            return self.get(resource, name, namespace=namespace)
        except NotFound:
            return None

    def list(
        self,
        resource: Resource[T],
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        page_size: int = PAGE_SIZE,
    ) -> Listing[T]:
        """Every matching object as of one moment; all namespaces if none is given."""
        found: Listing[T] = Listing([])
        token = ""
        while True:
            call = calls.read_list(
                resource,
                namespace=namespace,
                label_selector=label_selector,
                field_selector=field_selector,
                limit=page_size,
                continue_token=token,
            )
            try:
                body = self.call(call)
            except Gone:
                if not token:
                    raise
                # The pages expired under us; one whole page cannot.
                found, token, page_size = Listing([]), "", 0
                continue
            page = cast("Listing[T]", decode_list(resource.type, body, str(call)))
            found.items.extend(page.items)
            found.resource_version = page.resource_version
            token = page.continue_token
            if not token:
                return found

    def create(
        self,
        resource: Resource[T],
        body: Body,
        *,
        namespace: str | None = None,
        dry_run: bool = False,
        field_manager: str | None = None,
    ) -> T:
        """Create an object in `namespace`, or in the one its metadata names."""
        encoded = calls.encode(body)
        if namespace is None and resource.namespaced:
            namespace = calls.identity_of(encoded).namespace or self.namespace
        call = calls.create(
            resource,
            encoded,
            namespace=namespace,
            dry_run=dry_run,
            field_manager=field_manager or self._field_manager,
        )
        return self._decoded(resource, call)

    def replace(
        self,
        resource: Resource[T],
        body: Body,
        *,
        namespace: str | None = None,
        dry_run: bool = False,
    ) -> T:
        """Put `body` in place of the stored object; Conflict if its resourceVersion is old."""
        encoded = calls.encode(body)
        identity = calls.identity_of(encoded)
        call = calls.replace(
            resource,
            identity.name,
            encoded,
            namespace=self._in(resource, namespace or identity.namespace or None),
            dry_run=dry_run,
            field_manager=self._field_manager,
        )
        return self._decoded(resource, call)

    def patch(
        self,
        resource: Resource[T],
        name: str,
        body: Body,
        *,
        namespace: str | None = None,
        kind: PatchKind = "merge",
        subresource: str = "",
        expect: str | None = None,
        dry_run: bool = False,
        field_manager: str | None = None,
        force: bool = False,
    ) -> T:
        """Change part of an object; with `expect`, only if it is still at that resourceVersion."""
        call = calls.patch(
            resource,
            name,
            body if expect is None else calls.expecting(body, kind, expect),
            kind=kind,
            namespace=self._in(resource, namespace),
            sub=subresource,
            dry_run=dry_run,
            field_manager=field_manager or self._field_manager,
            force=force,
        )
        return self._decoded(resource, call)

    def patch_status(
        self,
        resource: Resource[T],
        name: str,
        status: Mapping[str, Any],
        *,
        namespace: str | None = None,
        expect: str | None = None,
    ) -> T:
        """Merge `status` into the stored one, wherever this kind keeps it."""
        return self.patch(
            resource,
            name,
            {"status": status},
            namespace=namespace,
            subresource="status" if resource.has_status else "",
            expect=expect,
        )

    def apply(
        self,
        resource: Resource[T],
        body: Body,
        *,
        field_manager: str,
        namespace: str | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> T:
        """Server-side apply: create or update so that `body` holds, owned by `field_manager`."""
        encoded = calls.encode(body)
        identity = calls.identity_of(encoded)
        return self.patch(
            resource,
            identity.name,
            encoded,
            namespace=namespace or identity.namespace or None,
            kind="apply",
            field_manager=field_manager,
            force=force,
            dry_run=dry_run,
        )

    def delete(
        self,
        resource: Resource[Any],
        name: str,
        *,
        namespace: str | None = None,
        grace_period_s: int | None = None,
        propagation: Propagation | None = None,
        uid: str | None = None,
        dry_run: bool = False,
        missing_ok: bool = False,
    ) -> bool:
        """Delete an object; False if `missing_ok` and there was none."""
        call = calls.delete(
            resource,
            name,
            namespace=self._in(resource, namespace),
            grace_period_s=grace_period_s,
            propagation=propagation,
            uid=uid,
            dry_run=dry_run,
        )
        try:
            self.call(call)
        except NotFound:
            if missing_ok:
                return False
            raise
        return True

    def subresource(
        self,
        resource: Resource[Any],
        name: str,
        subresource: str,
        *,
        namespace: str | None = None,
        body: Body | None = None,
    ) -> Obj:
        """Read any subresource, or POST `body` to it."""
        space = self._in(resource, namespace)
        if body is None:
            call = calls.read(resource, name, namespace=space, sub=subresource)
        else:
            call = calls.create(resource, body, namespace=space, name=name, sub=subresource)
        return self._decoded(resource.into(dict), call)

    def watch(
        self,
        resource: Resource[T],
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
        timeout_s: float | None = None,
    ) -> SyncWatch[T]:
        """Changes after `resource_version`: `with client.watch(JOBS) as events: for event in …`."""
        call = calls.watch(
            resource,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            resource_version=resource_version,
            timeout_s=timeout_s,
        )
        # No limit on silence: a watch has nothing to say while nothing changes.
        reader = WatchReader(resource.type, resource_version, str(call))
        return SyncWatch(self.stream(call), cast("WatchReader[T]", reader))

    def logs(
        self,
        pod: str,
        *,
        namespace: str | None = None,
        container: str | None = None,
        follow: bool = False,
        previous: bool = False,
        timestamps: bool = False,
        tail_lines: int | None = None,
        since_s: int | None = None,
        limit_bytes: int | None = None,
    ) -> SyncStream:
        """A container's output in chunks: `with client.logs("p") as chunks: for chunk in …`."""
        call = calls.logs(
            pod,
            namespace=namespace or self.namespace,
            container=container,
            follow=follow,
            previous=previous,
            timestamps=timestamps,
            tail_lines=tail_lines,
            since_s=since_s,
            limit_bytes=limit_bytes,
        )
        return self.stream(call)

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        body: Body | None = None,
        accept: str = "",
    ) -> bytes:
        """Anything outside the resource scheme: `client.request("GET", "/version")`."""
        return self.call(calls.other(method, path, query=query, body=body, accept=accept))

    # Sending

    def call(self, call: Call) -> bytes:
        """Send any call; the answer as bytes."""

        def once(proof: Proof) -> bytes:
            connection = self._open(proof)
            try:
                response = self._exchange(connection, call, proof)
                body = _read(call, response, self._max_body_bytes)
                if response.will_close:
                    self.close()
                return body
            except ApiError:
                raise
            except BaseException:
                self.close()  # whatever is left on the wire would be taken for the next answer
                raise

        return self._with_retries(call, once)

    def stream(self, call: Call) -> SyncStream:
        """The answer to `call` as it comes, over a connection of its own."""

        def once(proof: Proof) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
            connection = self._new_connection(proof)
            try:
                response = self._exchange(connection, call, proof)
                if connection.sock is not None:
                    connection.sock.settimeout(None)
                return connection, response
            except BaseException:
                connection.close()
                raise

        return SyncStream(call, *self._with_retries(call, once))

    def _with_retries(self, call: Call, once: Callable[[Proof], R]) -> R:
        tries = 0
        was_rejected = False
        while True:
            proof = self.config.credentials.current()
            tries += 1
            try:
                return once(proof)
            except Unauthorized:
                if was_rejected or not self.config.credentials.reject(proof):
                    raise
                was_rejected = True
                continue
            except KubeError as error:
                delay_s = self._retry.delay_s(call, tries, error, self._random)
                if delay_s is None:
                    raise
            self._sleep(delay_s)

    def _exchange(
        self, connection: http.client.HTTPConnection, call: Call, proof: Proof
    ) -> http.client.HTTPResponse:
        _connect(call, connection)
        try:
            connection.putrequest(
                call.method, self._server.path.rstrip("/") + call.target, skip_accept_encoding=True
            )
            connection.putheader("User-Agent", self._user_agent)
            connection.putheader("Accept", call.accept)
            connection.putheader("Accept-Encoding", self._encoding)
            for name, value in proof.headers:
                connection.putheader(name, value)
            if call.body is not None:
                connection.putheader("Content-Type", call.content_type)
            if call.body is not None or call.method in ("POST", "PUT", "PATCH"):
                connection.putheader("Content-Length", str(len(call.body or b"")))
            connection.endheaders(call.body)
            response = connection.getresponse()
        except _SOCKET_ERRORS as error:
            raise _translated(call, error) from error
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

    def _open(self, proof: Proof) -> http.client.HTTPConnection:
        if self._tls is not None and self._tls[0] != proof.certificate:
            self.close()  # a plugin gave us another certificate
        if self._connection is not None and _is_stale(self._connection):
            self.close()
        if self._connection is None:
            self._connection = self._new_connection(proof)
        return self._connection

    def _new_connection(self, proof: Proof) -> http.client.HTTPConnection:
        host, port = self._server.hostname or "", self._server.port
        if self._server.scheme == "http":
            return http.client.HTTPConnection(host, port or 80, timeout=self._timeout_s)
        if self._tls is None or self._tls[0] != proof.certificate:
            context = tls_context(
                self.config.ca_pem, insecure=self.config.insecure, certificate=proof.certificate
            )
            self._tls = (proof.certificate, context)
        name = self.config.tls_server_name
        return _TlsConnection(host, port or 443, self._timeout_s, self._tls[1], name)

    def _decoded(self, resource: Resource[T], call: Call) -> T:
        return cast(T, decode(resource.type, self.call(call), str(call)))

    def _in(self, resource: Resource[Any], namespace: str | None) -> str | None:
        return (namespace or self.namespace) if resource.namespaced else None


class SyncStream:
    """An open answer: iterate for its chunks; leaving the context closes the connection."""

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
        """Drop the connection."""
        self._response.close()
        self._connection.close()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        while True:
            try:
                chunk = self._response.read1(_CHUNK_BYTES)
            except _SOCKET_ERRORS as error:
                raise _translated(self._call, error) from error
            if not chunk:
                raise StopIteration
            if self._unzip is not None:
                chunk = self._unzip.decompress(chunk)
            if chunk:
                return chunk


class SyncWatch(Generic[T]):
    """One watch connection; see `client.Watch`."""

    def __init__(self, stream: SyncStream, reader: WatchReader[T]) -> None:
        self._stream = stream
        self._reader = reader
        self._ready: Iterator[WatchEvent[T]] = iter(())

    @property
    def resource_version(self) -> str:
        """Where a new watch would resume."""
        return self._reader.resource_version

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
        """Drop the connection."""
        self._stream.close()

    def __iter__(self) -> Iterator[WatchEvent[T]]:
        return self

    def __next__(self) -> WatchEvent[T]:
        while True:
            for event in self._ready:
                return event
            self._ready = self._reader.feed(next(self._stream))


class _TlsConnection(http.client.HTTPConnection):
    """http.client's own cannot be told a server name that differs from the address."""

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


def _connect(call: Call, connection: http.client.HTTPConnection) -> None:
    if connection.sock is not None:
        return
    try:
        connection.connect()
    except ssl.SSLError as error:
        raise TlsError(f"{call}: TLS was refused: {str(error)[:300]}") from error
    except OSError as error:
        shown = error.strerror or str(error) or type(error).__name__
        raise ConnectionLost(f"{call}: cannot connect: {shown[:300]}", established=False) from error


def _is_stale(connection: http.client.HTTPConnection) -> bool:
    """Whether the server has hung up: then there is something to read before we have asked."""
    if connection.sock is None:
        return True
    try:
        connection.sock.settimeout(0.0)
        if isinstance(connection.sock, ssl.SSLSocket):
            # Peeking is not possible through TLS; look at the socket below it.
            return bool(select.select([connection.sock.fileno()], [], [], 0)[0])
        return connection.sock.recv(1, socket.MSG_PEEK) is not None
    except (BlockingIOError, InterruptedError):
        return False
    except OSError:
        return True
    finally:
        if connection.sock is not None and connection.sock.fileno() >= 0:
            connection.sock.settimeout(connection.timeout)


def _translated(call: Call, error: Exception) -> KubeError:
    match error:
        case TimeoutError():
            return Timeout(f"{call}: no answer in time")
        case ssl.SSLError():
            return TlsError(f"{call}: TLS was refused: {str(error)[:300]}")
        case http.client.RemoteDisconnected() | http.client.IncompleteRead() | OSError():
            return ConnectionLost(f"{call}: the connection was lost")
        case _:
            return ProtocolError(f"{call}: not an HTTP answer: {type(error).__name__}")


def _unzipper(response: http.client.HTTPResponse) -> Any:
    # 16 + the window's size: zlib with a gzip header.
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
                raise ResponseTooLarge(f"{call}: the answer is larger than {limit} bytes")
            chunks.append(chunk)
    except zlib.error as error:
        raise ProtocolError(f"{call}: the answer does not decompress") from error
    except _SOCKET_ERRORS as error:
        raise _translated(call, error) from error
    return b"".join(chunks)

"""The ASGI application: limits, authentication, authorization, flow control and routing.

A refusal is a `StatusError`. Any other exception is a bug: it is logged with the request's id and
answered 500 without details.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from functools import partial
from itertools import chain
from typing import Any

import msgspec

from hekla.api import history
from hekla.apiserver import errors
from hekla.apiserver.auth.authenticator import ANONYMOUS, Authenticator, User
from hekla.apiserver.auth.impersonation import impersonated
from hekla.apiserver.auth.rbac import Authorizer
from hekla.apiserver.endpoints import compression, streams
from hekla.apiserver.endpoints.access_reviews import AccessReviews
from hekla.apiserver.endpoints.discovery import Discovery
from hekla.apiserver.endpoints.handlers import Handlers
from hekla.apiserver.endpoints.health import Health
from hekla.apiserver.endpoints.history import JobRecords
from hekla.apiserver.endpoints.messages import Request, Response
from hekla.apiserver.endpoints.streams import Streams
from hekla.apiserver.endpoints.subresources import Subresources
from hekla.apiserver.flowcontrol import Flow, FlowControl
from hekla.apiserver.metrics import Metrics
from hekla.apiserver.request_info import (
    Query,
    RequestInfo,
    parse_accept,
    parse_request_info,
)
from hekla.apiserver.schema.kinds import Registry

log = logging.getLogger("hekla.apiserver")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

MAX_BODY = 3 << 20
BODY_TIMEOUT_S = 30.0


class App:
    """Routes requests to handlers."""

    def __init__(
        self,
        *,
        registry: Registry,
        handlers: Handlers,
        subresources: Subresources,
        streams: Streams,
        reviews: AccessReviews,
        job_records: JobRecords,
        discovery: Discovery,
        authenticator: Authenticator,
        authorizer: Authorizer,
        metrics: Metrics,
        health: Health,
        flowcontrol: FlowControl | None = None,
    ) -> None:
        self._registry = registry
        self._handlers = handlers
        self._subresources = subresources
        self._streams = streams
        self._reviews = reviews
        self._job_records = job_records
        self._discovery = discovery
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._metrics = metrics
        self._health = health
        self._flowcontrol = flowcontrol or FlowControl()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._stream(scope, receive, send)
            return
        warnings: list[str] = []
        verb, resource = scope["method"], ""
        started = self._metrics.now()
        try:
            query = Query.parse(scope["query_string"])
            target = parse_request_info(scope["method"], scope["path"], query.values)
            verb, resource = target.verb, target.plural
            response = await self._respond(scope, receive, target, query, warnings)
        except errors.StatusError as error:
            response = Response(error.code, msgspec.json.encode(error.body()))
            response.headers += error.headers
        except Exception:
            log.exception("request failed: %s %s", scope["method"], scope["path"])
            failure = errors.internal("see the server's log")
            response = Response(500, msgspec.json.encode(failure.body()))
        self._metrics.observe(verb, resource, response.status, started)
        try:
            await _send(send, receive, response, warnings)
        except errors.StatusError:
            raise
        except Exception:
            # The status line is sent; the stream can only be ended.
            log.exception("response failed: %s %s", scope["method"], scope["path"])
            raise
        finally:
            if response.ended is not None:
                response.ended()

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve exec, attach and portforward after the checks of any request."""
        try:
            await receive()  # websocket.connect
            query = Query.parse(scope["query_string"])
            target = parse_request_info("GET", scope["path"], query.values)
            if target.plural != "pods" or target.subresource not in streams.VERBS:
                raise errors.no_such_path()
            headers = _headers(scope)
            user = self._user(headers)
            # kube-apiserver authorizes an upgraded GET as `get`; the right to run commands is
            # `create`.
            target.verb = "create"
            self._authorize(user, target)
            await self._streams.review(target, query, user)
            flow = _flow(scope, user, headers)
            if flow is None:
                await self._streams.handle(scope, receive, send, target, query)
                return
            self._flowcontrol.open_stream(flow)
            try:
                await self._streams.handle(scope, receive, send, target, query)
            finally:
                self._flowcontrol.close_stream(flow)
        except errors.StatusError as error:
            await streams.refuse(send, error)

    def _user(self, headers: dict[str, str]) -> User:
        user = self._authenticator.user_for(headers.get("authorization", ""))
        if user is None:
            raise errors.unauthorized()
        return impersonated(user, headers, self._authorize)

    async def _respond(
        self, scope: Scope, receive: Receive, target: RequestInfo, query: Query, warnings: list[str]
    ) -> Response:
        headers = _headers(scope)
        if not target.is_resource and (
            (health := self._health.answer(target.path, query)) is not None
        ):
            return health
        user = self._user(headers)
        self._authorize(user, target)
        flow = _flow(scope, user, headers)
        if flow is None or target.plural == "leases":
            return await self._answer(scope, receive, target, query, warnings, headers, user)
        if not self._flowcontrol.try_acquire(flow):
            await self._flowcontrol.wait(flow)
        try:
            response = await self._answer(scope, receive, target, query, warnings, headers, user)
        finally:
            self._flowcontrol.release(flow)
        if isinstance(response.body, AsyncIterator):
            self._flowcontrol.open_stream(flow)
            response.ended = partial(self._flowcontrol.close_stream, flow)
        return response

    async def _answer(
        self,
        scope: Scope,
        receive: Receive,
        target: RequestInfo,
        query: Query,
        warnings: list[str],
        headers: dict[str, str],
        user: User,
    ) -> Response:
        if not target.is_resource:
            return self._other(target, scope, headers)
        response = await self._resource(scope, receive, target, query, warnings, headers, user)
        response.may_compress = compression.is_accepted(headers.get("accept-encoding", ""))
        return response

    async def _resource(
        self,
        scope: Scope,
        receive: Receive,
        target: RequestInfo,
        query: Query,
        warnings: list[str],
        headers: dict[str, str],
        user: User,
    ) -> Response:
        served = self._registry.lookup(target.group, target.version, target.plural)
        if served is None:
            raise errors.no_such_path()
        if served.kind.namespaced:
            across = target.verb in ("list", "watch", "deletecollection") or served.kind.virtual
            if not target.namespace and not across:
                raise errors.no_such_path()
        elif target.namespace and served.storage != "namespaces":
            raise errors.no_such_path()
        request = Request(
            target=target,
            query=query,
            accept=parse_accept(headers.get("accept", "")),
            user=user,
            content_type=headers.get("content-type", ""),
            user_agent=headers.get("user-agent", ""),
            warnings=warnings,
        )
        if served.deprecation:
            warnings.append(served.deprecation)
        if scope["method"] not in ("GET", "HEAD"):
            request.body = await _read_body(receive, headers)
        if served.kind.kind == history.KIND and served.kind.virtual:
            return await self._job_records.handle(served, request)
        if served.kind.virtual:
            return await self._reviews.handle(served, request)
        if target.subresource in streams.VERBS and served.storage == "pods":
            await self._streams.review(target, query, user)
            raise self._streams.refusal(target, query)
        if target.subresource:
            return await self._subresources.handle(served, request)
        if target.verb == "create" and target.name:
            raise errors.method_not_allowed()
        return await self._handlers.handle(served, request)

    def _authorize(self, user: User, target: RequestInfo) -> None:
        allowed, why = self._authorizer.allows(user, target)
        if allowed:
            return
        if user is ANONYMOUS:
            raise errors.unauthorized()
        if not target.is_resource:
            raise errors.StatusError(
                403,
                "Forbidden",
                f'User "{user.name}" cannot {target.verb} path "{target.path}"{why}',
            )
        what = f'resource "{target.plural}"'
        if target.subresource:
            what = f'resource "{target.plural}/{target.subresource}"'
        where = (
            f'in the namespace "{target.namespace}"'
            if target.namespace
            else ("at the cluster scope")
        )
        raise errors.forbidden(
            target.group,
            target.plural,
            target.name,
            f'User "{user.name}" cannot {target.verb} {what} in API group "{target.group}" '
            f"{where}{why}",
        )

    def _other(self, target: RequestInfo, scope: Scope, headers: dict[str, str]) -> Response:
        if target.verb != "get":
            raise errors.no_such_path()
        if target.path == "/metrics":
            return Response(200, self._metrics.render(), "text/plain; version=0.0.4")
        answer = self._discovery.answer(
            target.path, headers.get("accept", ""), headers.get("if-none-match", "")
        )
        if answer is None:
            raise errors.no_such_path()
        return answer


def _flow(scope: Scope, user: User, headers: dict[str, str]) -> Flow | None:
    """Return the flow of a request; None for in-process clients, which have no address.

    Leases are not subject to flow control either: a leader that cannot renew stops.
    """
    source = scope.get("client")
    if source is None:
        return None
    return FlowControl.flow(user, headers.get("user-agent", ""), source[0])


def _headers(scope: Scope) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name = raw_name.decode("latin-1")
        value = raw_value.decode("latin-1")
        if name in headers:
            # Accept and Impersonate-Group may be repeated.
            joiner = "\n" if name.startswith("impersonate-") else ","
            headers[name] += joiner + value
        else:
            headers[name] = value
    return headers


async def _read_body(receive: Receive, headers: dict[str, str]) -> bytes:
    declared = headers.get("content-length", "")
    if declared.isdigit() and int(declared) > MAX_BODY:
        raise errors.too_large(MAX_BODY)
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise errors.bad_request(
                        "the client closed the connection before the body was complete"
                    )
                chunk = message.get("body", b"")
                size += len(chunk)
                if size > MAX_BODY:
                    raise errors.too_large(MAX_BODY)
                chunks.append(chunk)
                if not message.get("more_body"):
                    return b"".join(chunks)
    except TimeoutError as error:
        raise errors.StatusError(
            408, "Timeout", f"the body did not arrive within {BODY_TIMEOUT_S:.0f} s"
        ) from error


async def _send(send: Send, receive: Receive, response: Response, warnings: list[str]) -> None:
    headers = [(b"content-type", response.content_type.encode())]
    headers += [(name.encode(), value.encode()) for name, value in response.headers]
    for warning in warnings[:10]:
        plain = "".join(letter if letter.isprintable() else "?" for letter in warning[:512])
        text = plain.replace("\\", "\\\\").replace('"', '\\"')
        headers.append((b"warning", f'299 - "{text}"'.encode("utf-8", "replace")))
    body = response.body
    if response.may_compress and not isinstance(body, AsyncIterator):
        body, more = _packed(body)
        headers += more
    if isinstance(body, bytes):
        headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    if isinstance(body, bytes):
        await send({"type": "http.response.body", "body": body})
    elif isinstance(body, AsyncIterator):
        await _stream(send, receive, body)
    else:
        await _send_chunks(send, body)


def _packed(
    body: bytes | Iterable[bytes],
) -> tuple[bytes | Iterable[bytes], list[tuple[bytes, bytes]]]:
    """Return a body compressed if it is large, and the headers that say so."""
    encoded = [(name.encode(), value.encode()) for name, value in compression.HEADERS]
    if isinstance(body, bytes):
        if len(body) <= compression.THRESHOLD:
            return body, []
        return compression.compressed(body), encoded
    chunks = iter(body)
    is_large, taken = compression.is_large(chunks)
    if not is_large:
        return b"".join(taken), []
    return compression.compressed_chunks(chain(taken, chunks)), encoded


async def _send_chunks(send: Send, chunks: Iterable[bytes]) -> None:
    for chunk in chunks:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await asyncio.sleep(0)  # let other requests run between the chunks of a long list
    await send({"type": "http.response.body", "body": b""})


async def _stream(send: Send, receive: Receive, chunks: AsyncIterator[bytes]) -> None:
    """Send chunks until the source ends or the client disconnects."""

    async def pump() -> None:
        # The client of an idle watch must get its headers now, not with the first event.
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        async for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    tasks = [asyncio.ensure_future(pump()), asyncio.ensure_future(gone())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        close = getattr(chunks, "aclose", None)
        if close is not None:
            await close()

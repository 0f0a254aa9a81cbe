"""The webhook endpoints, as an ASGI application.

With `verifies_clients` only a caller with a client certificate is answered. Bodies are limited to 3
MiB and 10 seconds, and requests per address and in all: more are answered 429, which the API server
retries. A malformed review is answered 400 and a bug in a rule
500, which the API server reports as "failed calling webhook"; neither admits an object unchecked.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, MutableMapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec

from hekla.admission import reviews
from hekla.admission.webhooks import HOOKS
from hekla.api.volcano import View

log = logging.getLogger("hekla.admission")

MASTERS = "system:masters"
MAX_BODY = 3 << 20
BODY_TIMEOUT_S = 10.0
MAX_REQUESTS = 64
MAX_PER_CALLER = 32
"""Requests with a body under way. Each may hold 3 MiB."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class _Refused(Exception):
    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class App:
    def __init__(
        self,
        view: View,
        *,
        current: Callable[[str | None], Awaitable[View]] | None = None,
        verifies_clients: bool = False,
        trusted: Collection[str] = (MASTERS,),
    ) -> None:
        """`current` reads the state of the cluster anew, before a refusal that depends on it.

        Its argument is a queue of which the workloads are read too, before it is deleted.
        """
        self._view = view
        self._current = current
        self._verifies_clients = verifies_clients
        self._callers: Counter[str] = Counter()
        mutate = partial(reviews.mutate, trusted=trusted)
        self._actions = {
            hook.path: mutate if hook.action == "mutate" else reviews.validate for hook in HOOKS
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            status, body = 200, await self._answer(scope, receive)
        except _Refused as error:
            status, body = error.status, str(error).encode()
        except reviews.InvalidReview as error:
            status, body = 400, str(error).encode()
        except Exception:
            log.exception("review failed at %s", scope["path"])
            status, body = 500, b"the review failed; see the admission service's log"
        kind = b"application/json" if status == 200 else b"text/plain"
        headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Scope, receive: Receive) -> bytes:
        if scope["path"] == "/healthz":
            return b'"ok"'
        action = self._actions.get(scope["path"])
        if action is None:
            raise _Refused(404, f"no such webhook: {scope['path']}")
        if scope["method"] != "POST":
            raise _Refused(405, "reviews must be sent by POST")
        kind = dict(scope["headers"]).get(b"content-type", b"").split(b";")[0].strip()
        if kind != b"application/json":
            raise _Refused(415, "reviews must be application/json")
        extensions = scope.get("extensions") or {}
        if self._verifies_clients and "tls" not in extensions:
            raise _Refused(401, "reviews need the API server's client certificate")
        with self._admitted((scope.get("client") or ("",))[0]):
            request = reviews.read(await _body(receive))
            answer = action(request, self._view)
            deleted = reviews.deleted_queue(request)
            if self._current is not None and (deleted or reviews.depends_on_queues(answer)):
                # The informer may be a moment behind, as after the deletion of the last child.
                answer = action(request, await self._current(deleted))
            return msgspec.json.encode(answer)

    @contextmanager
    def _admitted(self, caller: str) -> Iterator[None]:
        if self._callers[caller] >= MAX_PER_CALLER or self._callers.total() >= MAX_REQUESTS:
            raise _Refused(429, "too many reviews at once; try again later")
        self._callers[caller] += 1
        try:
            yield
        finally:
            self._callers[caller] -= 1
            if not self._callers[caller]:
                del self._callers[caller]


async def _body(receive: Receive) -> bytes:
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise _Refused(400, "the client disconnected before the review was complete")
                chunks.append(message.get("body", b""))
                size += len(chunks[-1])
                if size > MAX_BODY:
                    raise _Refused(413, f"a review is limited to {MAX_BODY} bytes")
                if not message.get("more_body"):
                    return b"".join(chunks)
    except TimeoutError as error:
        raise _Refused(408, "the review did not arrive in time") from error

"""The law of the informer, over any history.

Whatever the server does (changes, lost connections, expired versions, replayed and reordered
events, bookmarks, failing lists, unreadable lines), when it becomes idle the informer has exactly
the server's objects, and so has a handler that replays its notifications.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.kube.calls import identity_of
from hekla.kube.errors import ConnectionLost, Gone, ProtocolError, ServerError
from hekla.kube.informers import Informer
from hekla.kube.resources import PODS
from hekla.kube.responses import Listing, WatchEvent
from hekla.units.clock import ManualClock

NAMES = ("a", "b")


def some(**weights: int) -> list[str]:
    return [name.replace("_", " ") for name, weight in weights.items() for _ in range(weight)]


CHANGE = st.tuples(st.sampled_from(some(put=3, delete=2, recreate=1)), st.sampled_from(NAMES))
# Faults that cause a new list repair all other errors, so they are rare.
DELIVERY = st.tuples(
    st.sampled_from(
        some(flush=5, replay=5, check=3, swap=2, bookmark=2, cut=2, end=1, wait=1, unrelated=1)
        + some(forget=1, garbage=1, list_fails=1, page_expires=1, page_expires_now=1)
    ),
    st.integers(0, 3),
)
STEP = st.one_of(CHANGE, DELIVERY)


class Server:
    """Objects, a history, and one watch whose deliveries the script controls."""

    def __init__(self) -> None:
        self.version = 10
        self.objects: dict[str, dict[str, Any]] = {}
        self.history: list[tuple[int, str, bytes]] = []
        self.forgotten = 0
        self.watch_queue: asyncio.Queue[Any] | None = None
        self.held: list[tuple[int, str, bytes]] = []
        self.failing_lists = 0
        self.expiring_pages = 0

    def change(self, kind: str, name: str) -> None:
        self.version += 1
        old = self.objects.pop(name, None)
        if kind == "DELETED":
            if old is None:
                return
            obj = old
        else:
            kind = "MODIFIED" if old else "ADDED"
            uid = old["metadata"]["uid"] if old else f"u{self.version}"
            obj = {"metadata": {"name": name, "namespace": "ns", "uid": uid}}
            self.objects[name] = obj
        obj = {"metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        if kind != "DELETED":
            self.objects[name] = obj
        record = (self.version, kind, msgspec.json.encode(obj))
        self.history.append(record)
        self.held.append(record)

    def send(self, item: Any) -> None:
        if self.watch_queue is not None:
            self.watch_queue.put_nowait(item)

    def flush(self) -> None:
        for record in self.held:
            self.send(record)
        self.held.clear()

    def step(self, action: str, argument: Any) -> None:
        match action:
            case "put":
                self.change("PUT", argument)
            case "delete":
                self.change("DELETED", argument)
            case "recreate":
                self.change("DELETED", argument)
                self.change("PUT", argument)
            case "flush":
                self.flush()
            case "swap":
                # Reordered among the pending events, which all arrive.
                Random(argument).shuffle(self.held)
                self.flush()
            case "replay":
                # A single old event: the worst case, as no later event corrects it.
                sent = [record for record in self.history if record not in self.held]
                if argument < len(sent):
                    self.send(sent[-1 - argument])
            case "bookmark":
                self.flush()  # a bookmark guarantees that everything before it was sent
                self.send(str(self.version))
            case "cut":
                self.held.clear()
                self.send(ConnectionLost("cut"))
            case "end":
                self.held.clear()
                self.send(None)
            case "garbage":
                self.held.clear()
                self.send(ProtocolError("garbage"))
            case "forget":
                self.forgotten = self.version
                self.history.clear()
                self.held.clear()
                self.send(Gone(410, "Expired"))
            case "list fails":
                self.failing_lists += 1
            case "page expires":
                self.expiring_pages += 1
            case "page expires now":
                self.expiring_pages += 1
                self.step("garbage", 0)
            case "unrelated":
                self.version += 1

    # Called by the informer

    async def pages(
        self, resource: Any, *, page_size: int = 500, **_: Any
    ) -> AsyncGenerator[Listing[msgspec.Raw], None]:
        if self.failing_lists:
            self.failing_lists -= 1
            raise ServerError(500)
        items = [msgspec.Raw(msgspec.json.encode(each)) for each in self.objects.values()]
        version = str(self.version)
        size = page_size or len(items) or 1
        for start in range(0, len(items) or 1, size):
            if start and self.expiring_pages:
                self.expiring_pages -= 1
                raise Gone(410, "Expired")
            yield Listing(items[start : start + size], version)
            for _step in range(5):  # slower than the script's steps, so that they interleave
                await asyncio.sleep(0)

    @asynccontextmanager
    async def watch(self, resource: Any, *, resource_version: str = "", **_: Any) -> Any:
        queue: asyncio.Queue[Any] = asyncio.Queue()
        since = int(resource_version)
        if since < self.forgotten:
            queue.put_nowait(Gone(410, "Expired"))
        for record in self.history:
            if record[0] > since:
                queue.put_nowait(record)
        self.held.clear()
        self.watch_queue = queue
        try:
            yield Watch(queue, resource_version)
        finally:
            if self.watch_queue is queue:
                self.watch_queue = None


class Watch:
    def __init__(self, queue: asyncio.Queue[Any], version: str) -> None:
        self.queue = queue
        self.resource_version = version

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> WatchEvent[msgspec.Raw]:
        while True:
            item = await self.queue.get()
            if item is None:
                raise StopAsyncIteration
            if isinstance(item, Exception):
                raise item
            if isinstance(item, str):
                self.resource_version = item
                continue
            _, kind, body = item
            identity = identity_of(body)
            self.resource_version = identity.resourceVersion
            return WatchEvent(kind, msgspec.Raw(body), identity)


class Replay:
    """The state of a handler that only replays notifications."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}

    def __call__(self, event: str, old: Any, new: Any) -> None:
        name = (new or old)["metadata"]["name"]
        match event:
            case "ADDED":
                assert name not in self.objects, "added twice"
                assert old is None
                self.objects[name] = new
            case "MODIFIED":
                assert self.objects[name] == old, "the old state differs from the last notification"
                assert old["metadata"]["uid"] == new["metadata"]["uid"], "another object"
                self.objects[name] = new
            case "DELETED":
                assert new is None
                assert self.objects[name]["metadata"]["uid"] == old["metadata"]["uid"]
                del self.objects[name]


async def run(steps: list[tuple[str, Any]], page_size: int) -> None:
    server, clock, replay = Server(), ManualClock(), Replay()
    mistakes: list[Exception] = []

    def checked(event: Any, old: Any, new: Any) -> None:
        try:
            replay(event, old, new)
        except Exception as error:  # a store logs and continues; a test must fail
            mistakes.append(error)

    informer = Informer(server, PODS, dict, page_size=page_size, clock=clock, random=Random(3))
    informer.add_handler(checked)
    async with informer:
        for action, argument in [*steps, ("check", 0)]:
            server.step(action, argument)
            if action == "wait":
                await clock.advance(argument)
            elif action == "check":
                # Idle: faults stop, and pending events arrive.
                server.failing_lists = server.expiring_pages = 0
                server.flush()
                for _ in range(4):
                    await clock.advance(60)
                want_objects = server.objects
                assert mistakes == []
                assert want_objects == {obj["metadata"]["name"]: obj for obj in informer.list()}
                assert want_objects == replay.objects
            else:
                # Few rounds, so that steps interleave with the informer's.
                await clock.settle(3)


@settings(max_examples=300, deadline=None)
@given(st.lists(STEP, min_size=15, max_size=60), st.integers(1, 2))
def test_store_and_handlers_equal_the_server_after_any_events(
    steps: list[tuple[str, Any]], page_size: int
) -> None:
    asyncio.run(run(steps, page_size))

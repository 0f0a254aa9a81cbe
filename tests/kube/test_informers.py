"""The informer over a real socket: list, watch, failure and recovery."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import msgspec
import pytest
from aiohttp import web

from hekla.kube import errors
from hekla.kube.client import Client
from hekla.kube.informers import Informer
from hekla.kube.kubeconfig import ClusterConfig
from hekla.kube.resources import PODS
from hekla.units.clock import ManualClock
from tests.kube.fake_server import FakeServer

POD_PATH = "/api/v1/pods"


class Meta(msgspec.Struct):
    name: str
    namespace: str = ""


class Spec(msgspec.Struct):
    nodeName: str = ""
    big: str = ""


class Pod(msgspec.Struct):
    metadata: Meta
    spec: Spec = msgspec.field(default_factory=Spec)


class Diary:
    """A handler that records notifications; a test can wait for the next."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, str]] = []
        self.pairs: list[tuple[Any, Any]] = []
        self._grew = asyncio.Event()

    def __call__(self, event: str, old: Pod | None, new: Pod | None) -> None:
        about = new or old
        assert about is not None
        self.entries.append((event, about.metadata.name))
        self.pairs.append((old, new))
        self._grew.set()

    async def reaches(self, count: int) -> list[tuple[str, str]]:
        async with asyncio.timeout(60):
            while len(self.entries) < count:
                self._grew.clear()
                await self._grew.wait()
        return self.entries


def _cached(informer: Informer[Pod], name: str) -> Pod:
    pod = informer.get("ml", name)
    assert pod is not None
    return pod


def _fail(event: Any, old: Any, new: Any) -> None:
    raise ZeroDivisionError


@asynccontextmanager
async def following(client: Client, **options: Any) -> AsyncIterator[tuple[Informer[Pod], Diary]]:
    informer = Informer(client, PODS, Pod, clock=client.clock, random=Random(2), **options)
    diary = Diary()
    informer.add_handler(diary)
    async with informer:
        async with asyncio.timeout(60):
            await informer.synced()
        yield informer, diary


async def test_first_list_calls_handlers_with_added(client: Client, server: FakeServer) -> None:
    for number in range(5):
        server.put(POD_PATH, f"p{number}", "ml")
    async with following(client, page_size=2) as (informer, diary):
        assert [("ADDED", f"p{n}") for n in range(5)] == diary.entries
        assert len(informer) == 5
        assert _cached(informer, "p3").metadata.name == "p3"
        assert informer.get("ml", "p9") is None


async def test_expired_pages_leave_no_objects_behind(client: Client, server: FakeServer) -> None:
    for number in range(4):
        server.put(POD_PATH, f"p{number}", "ml")

    async def ordinary(request: web.Request) -> None:
        return None

    async def expire(request: web.Request) -> None:
        server.pages.clear()
        server.remove(POD_PATH, "p0", "ml")

    server.script_call(ordinary)
    server.script_call(expire)
    async with following(client, page_size=2) as (informer, _):
        assert sorted(pod.metadata.name for pod in informer.list()) == ["p1", "p2", "p3"]


async def test_changes_arrive_in_order_with_old_and_new(client: Client, server: FakeServer) -> None:
    async with following(client) as (informer, diary):
        await server.watching()
        server.put(POD_PATH, "a", "ml")
        server.put(POD_PATH, "a", "ml", spec={"nodeName": "n1"})
        server.remove(POD_PATH, "a", "ml")
        await diary.reaches(3)
        assert diary.entries == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
        (_, (before, after), (last, nothing)) = diary.pairs
        assert (before.spec.nodeName, after.spec.nodeName) == ("", "n1")
        assert (last.spec.nodeName, nothing) == ("n1", None)
        assert len(informer) == 0


async def test_ended_watch_resumes_without_a_list(client: Client, server: FakeServer) -> None:
    async with following(client) as (informer, diary):
        await server.watching()
        server.put(POD_PATH, "a", "ml")
        await diary.reaches(1)
        server.end_watches(POD_PATH)
        server.put(POD_PATH, "b", "ml")
        await diary.reaches(2)
        assert informer.stats.lists == 1


async def test_bookmark_advances_the_resume_version(client: Client, server: FakeServer) -> None:
    async with following(client) as (_, diary):
        await server.watching()
        server.put("/api/v1/nodes", "elsewhere")
        want_version = str(server.version)
        server.bookmark(POD_PATH)
        server.end_watches(POD_PATH)
        server.put(POD_PATH, "a", "ml")
        await diary.reaches(1)
        watches = [seen for seen in server.seen if seen.query.get("watch")]
        assert want_version == watches[-1].query["resourceVersion"]


async def test_list_after_a_gap_reports_only_differences(
    client: Client, server: FakeServer
) -> None:
    for name in ("stays", "changes", "goes"):
        server.put(POD_PATH, name, "ml")
    async with following(client) as (informer, diary):
        await server.watching()
        server.kind(POD_PATH).watchers.clear()  # these changes are missed
        server.put(POD_PATH, "changes", "ml", spec={"nodeName": "n2"})
        server.remove(POD_PATH, "goes", "ml")
        server.put(POD_PATH, "comes", "ml")
        server.forget(POD_PATH)
        assert len(diary.entries) == 3
        assert informer._task is not None
        informer._task.cancel()  # simulates a broken connection, which each gap has
        await asyncio.wait([informer._task])
        informer._task = asyncio.create_task(informer.run())
        await diary.reaches(6)
        want_news = {("MODIFIED", "changes"), ("DELETED", "goes"), ("ADDED", "comes")}
        assert want_news == set(diary.entries[3:])
        assert informer.stats.lists == 2


async def test_recreated_object_is_deleted_and_added(client: Client, server: FakeServer) -> None:
    server.put(POD_PATH, "a", "ml")
    async with following(client) as (informer, diary):
        await server.watching()
        server.kind(POD_PATH).watchers.clear()
        server.remove(POD_PATH, "a", "ml")
        server.put(POD_PATH, "a", "ml")
        server.forget(POD_PATH)
        assert informer._task is not None
        informer._task.cancel()
        await asyncio.wait([informer._task])
        informer._task = asyncio.create_task(informer.run())
        await diary.reaches(3)
        assert diary.entries == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "a")]


async def test_unreadable_event_causes_a_new_list(client: Client, server: FakeServer) -> None:
    async def garbage(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"this is not JSON\n")
        return response

    async def ordinary(request: web.Request) -> None:
        return None

    server.script_call(ordinary)
    server.script_call(garbage)
    async with following(client) as (informer, diary):
        server.put(POD_PATH, "a", "ml")
        await diary.reaches(1)
        assert informer.stats.lists >= 2


async def test_undecodable_object_keeps_its_last_state(client: Client, server: FakeServer) -> None:
    server.put(POD_PATH, "a", "ml", spec={"nodeName": "n1"})
    async with following(client) as (informer, diary):
        await server.watching()
        server.put(POD_PATH, "a", "ml", spec={"nodeName": 7})
        server.put(POD_PATH, "b", "ml")
        await diary.reaches(2)
        assert diary.entries == [("ADDED", "a"), ("ADDED", "b")]
        assert _cached(informer, "a").spec.nodeName == "n1"
        assert informer.stats.undecodable == 1
        server.forget(POD_PATH)
        server.end_watches(POD_PATH)
        server.put(POD_PATH, "c", "ml")
        await diary.reaches(3)
        assert informer.get("ml", "a") is not None


async def test_problem_is_reported_while_it_lasts(
    monkeypatch: pytest.MonkeyPatch, client: Client, server: FakeServer
) -> None:
    server.script(403, times=3)
    informer = Informer(client, PODS, Pod, clock=client.clock, random=Random(2))
    problems = []
    original = informer._failed

    async def noting(error: Any) -> None:
        await original(error)
        problems.append(type(informer.problem))

    monkeypatch.setattr(informer, "_failed", noting)
    async with informer, asyncio.timeout(60):
        await informer.synced()
        await server.watching()
        assert [errors.Forbidden] * 3 == problems
        assert informer.problem is None


async def test_back_off_grows_while_lists_fail(
    client: Client, server: FakeServer, naps: list[float]
) -> None:
    server.script(403, times=6)
    async with following(client):
        waits = naps[:6]
    assert all(later > earlier for earlier, later in zip(waits, waits[2:], strict=False))


async def test_indexes_follow_additions_changes_and_deletions(
    client: Client, server: FakeServer
) -> None:
    server.put(POD_PATH, "a", "ml", spec={"nodeName": "n1"})
    indexers = {"node": lambda pod: [pod.spec.nodeName] if pod.spec.nodeName else []}
    async with following(client, indexers=indexers) as (informer, diary):
        assert [pod.metadata.name for pod in informer.by_index("node", "n1")] == ["a"]
        await server.watching()
        server.put(POD_PATH, "a", "ml", spec={"nodeName": "n2"})
        await diary.reaches(2)
        assert list(informer.by_index("node", "n1")) == []
        assert [pod.metadata.name for pod in informer.by_index("node", "n2")] == ["a"]
        server.remove(POD_PATH, "a", "ml")
        await diary.reaches(3)
        assert list(informer.by_index("node", "n2")) == []
        with pytest.raises(KeyError, match="node"):
            informer.by_index("nope", "x")


async def test_transform_is_applied_before_storing(client: Client, server: FakeServer) -> None:
    def lean(pod: Pod) -> Pod:
        pod.spec.big = ""
        return pod

    server.put(POD_PATH, "a", "ml", spec={"big": "x" * 10_000})
    async with following(client, transform=lean) as (informer, _):
        assert _cached(informer, "a").spec.big == ""


async def test_failing_handler_does_not_affect_others(client: Client, server: FakeServer) -> None:
    async with following(client) as (informer, diary):
        informer.add_handler(_fail)
        later = Diary()
        informer.add_handler(later)
        await server.watching()
        server.put(POD_PATH, "a", "ml")
        await diary.reaches(1)
        await later.reaches(1)


async def test_late_handler_gets_existing_objects(client: Client, server: FakeServer) -> None:
    server.put(POD_PATH, "a", "ml")
    async with following(client) as (informer, _):
        late = Diary()
        informer.add_handler(late)
        assert late.entries == [("ADDED", "a")]


async def test_namespace_and_selectors_reach_both_list_and_watch(
    client: Client, server: FakeServer
) -> None:
    server.put(POD_PATH, "a", "ml")
    server.put(POD_PATH, "b", "web")
    async with following(client, namespace="ml", label_selector="x=y", field_selector="s=t") as (
        informer,
        _,
    ):
        await server.watching()
        assert [pod.metadata.name for pod in informer.list()] == ["a"]
    for seen in server.seen:
        assert seen.path == "/api/v1/namespaces/ml/pods"
        assert (seen.query["labelSelector"], seen.query["fieldSelector"]) == ("x=y", "s=t")


async def test_resync_calls_handlers_for_all_objects(
    server: FakeServer, make_config: Callable[..., ClusterConfig], clock: ManualClock
) -> None:
    server.put(POD_PATH, "a", "ml")
    async with Client(make_config(server.url), clock=clock) as client:
        informer = Informer(client, PODS, Pod, clock=clock, resync_s=60)
        diary = Diary()
        informer.add_handler(diary)
        async with informer, asyncio.timeout(60):
            await informer.synced()
            await clock.advance(60)
            assert diary.entries == [("ADDED", "a"), ("MODIFIED", "a")]
            old, new = diary.pairs[-1]
            assert old is new


async def test_leaving_the_context_stops_the_informer(client: Client, server: FakeServer) -> None:
    async with following(client) as (informer, diary):
        await server.watching()
    server.put(POD_PATH, "a", "ml")
    assert diary.entries == []
    assert informer._task is None


async def test_informer_cannot_be_started_twice(client: Client) -> None:
    async with following(client) as (informer, _):
        with pytest.raises(RuntimeError, match="running"):
            await informer.__aenter__()

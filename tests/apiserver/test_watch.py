"""Watches over HTTP: order, selectors, bookmarks, expired versions, slow clients."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hekla.apiserver.endpoints import watch
from hekla.apiserver.server import ApiServer, Config
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.resources import CONFIGMAPS, PODS
from tests.apiserver.objects import config_map, pod

MAPS = "/api/v1/namespaces/default/configmaps"


def connect(server: ApiServer) -> aiohttp.ClientSession:
    pki = server.config.data_dir / "pki"
    context = ssl.create_default_context(cadata=(pki / "ca.crt").read_text())
    token = (pki / "admin.token").read_text().strip()
    return aiohttp.ClientSession(
        server.address,
        connector=aiohttp.TCPConnector(ssl=context),
        headers={"Authorization": f"Bearer {token}"},
        read_bufsize=1 << 16,
    )


@pytest.fixture
async def http(server: ApiServer) -> AsyncIterator[aiohttp.ClientSession]:
    async with connect(server) as session:
        yield session


async def events(answer: aiohttp.ClientResponse, count: int) -> list[dict[str, Any]]:
    """Return the next lines of a watch."""
    async with asyncio.timeout(60):
        return [json.loads(await answer.content.readline()) for _ in range(count)]


# Each namespace has one config map of the server.
OURS = {"fieldSelector": "metadata.name!=kube-root-ca.crt"}


def told(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"]["name"]) for event in found]


async def test_watch_without_a_version_starts_with_existing_objects(
    client: Client, http: aiohttp.ClientSession
) -> None:
    await client.create(CONFIGMAPS, config_map("a"))
    async with http.get(MAPS, params={"watch": "true", **OURS}) as answer:
        assert told(await events(answer, 1)) == [("ADDED", "a")]
        await client.create(CONFIGMAPS, config_map("b"))
        await client.patch(CONFIGMAPS, "a", {"data": {"k": "v"}}, namespace="default")
        await client.delete(CONFIGMAPS, "b", namespace="default")
        found = await events(answer, 3)
        assert told(found) == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]
        versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in found]
        assert versions == sorted(versions)


async def test_watch_with_a_selector_sends_added_and_deleted_when_matching_changes(
    client: Client, http: aiohttp.ClientSession
) -> None:
    await client.create(CONFIGMAPS, config_map("a"))
    version = (await client.list(CONFIGMAPS, namespace="default")).resource_version
    query = {"watch": "1", "labelSelector": "team=red", "resourceVersion": version}
    async with http.get(MAPS, params=query) as answer:
        for team in ("red", "red", "blue", "red"):
            labels = {"team": team, "n": str(id(team))}
            await client.patch(
                CONFIGMAPS, "a", {"metadata": {"labels": labels}}, namespace="default"
            )
            await client.patch(CONFIGMAPS, "a", {"data": {"turn": team}}, namespace="default")
        found = await events(answer, 5)
        kinds = [event["type"] for event in found]
        assert kinds[0] == "ADDED"
        assert "DELETED" in kinds
        gone = found[kinds.index("DELETED")]["object"]
        assert gone["metadata"]["labels"]["team"] == "red", "the last version it knew"
        assert kinds[kinds.index("DELETED") + 1] == "ADDED"


async def test_watch_by_node_name_sends_only_pods_of_the_node(
    client: Client, http: aiohttp.ClientSession
) -> None:
    query = {"watch": "true", "fieldSelector": "spec.nodeName=n1"}
    async with http.get("/api/v1/pods", params=query) as answer:
        for name, node in (("a", "n1"), ("b", "n2"), ("c", "n1")):
            await client.create(PODS, pod(name))
            await client.bind(name, node, namespace="default")
        assert told(await events(answer, 2)) == [("ADDED", "a"), ("ADDED", "c")]


async def test_a_single_object_can_be_watched_by_name(
    client: Client, http: aiohttp.ClientSession
) -> None:
    await client.create(CONFIGMAPS, config_map("a"))
    for path, query in (
        (MAPS, {"watch": "true", "fieldSelector": "metadata.name=a"}),
        ("/api/v1/watch/namespaces/default/configmaps/a", {}),
    ):
        async with http.get(path, params=query) as answer:
            await client.create(CONFIGMAPS, config_map("other"))
            await client.delete(CONFIGMAPS, "other", namespace="default")
            await client.patch(CONFIGMAPS, "a", {"data": {"p": path}}, namespace="default")
            assert told(await events(answer, 2)) == [("ADDED", "a"), ("MODIFIED", "a")]


async def test_bookmarks_are_sent_on_request(
    client: Client, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "BOOKMARK_INTERVAL_S", 0.05)
    await client.create(PODS, pod("elsewhere"))
    version = (await client.list(CONFIGMAPS)).resource_version
    query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version}
    async with http.get(MAPS, params=query) as answer:
        await client.create(PODS, pod("later"))
        (bookmark,) = await events(answer, 1)
        while int(bookmark["object"]["metadata"]["resourceVersion"]) <= int(version):
            (bookmark,) = await events(answer, 1)
        assert bookmark["type"] == "BOOKMARK"
        assert bookmark["object"]["kind"] == "ConfigMap"
        assert "name" not in bookmark["object"]["metadata"]


async def test_streaming_list_ends_with_a_bookmark(
    client: Client, http: aiohttp.ClientSession
) -> None:
    for name in ("a", "b"):
        await client.create(CONFIGMAPS, config_map(name))
    query = {
        "watch": "true",
        "sendInitialEvents": "true",
        "allowWatchBookmarks": "true",
        "resourceVersionMatch": "NotOlderThan",
        **OURS,
    }
    async with http.get(MAPS, params=query) as answer:
        found = await events(answer, 3)
        assert told(found[:2]) == [("ADDED", "a"), ("ADDED", "b")]
        annotations = found[2]["object"]["metadata"]["annotations"]
        assert annotations == {"k8s.io/initial-events-end": "true"}
    del query["resourceVersionMatch"]
    async with http.get(MAPS, params=query) as answer:
        assert answer.status == 422


async def test_resource_version_from_before_a_restart_is_too_old(tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path / "data")
    async with ApiServer(config) as server, Client(kubeconfig.load(server.kubeconfig)) as client:
        version = (await client.list(CONFIGMAPS)).resource_version
        await client.create(CONFIGMAPS, config_map("a"))
    async with ApiServer(config) as server, connect(server) as http:
        query = {"watch": "true", "resourceVersion": version}
        async with http.get(MAPS, params=query) as answer:
            (event,) = await events(answer, 1)
            assert event["type"] == "ERROR"
            assert event["object"]["code"] == 410
            assert event["object"]["reason"] == "Expired"
            assert await answer.content.readline() == b"", "and the stream ends"
        async with http.get(
            MAPS, params={"resourceVersion": version, "resourceVersionMatch": "Exact"}
        ) as answer:
            assert answer.status == 410


async def test_future_resource_version_is_refused_with_retry_after(
    http: aiohttp.ClientSession,
) -> None:
    async with http.get(MAPS, params={"resourceVersion": "999999999"}) as answer:
        assert answer.status == 504
        assert answer.headers["Retry-After"] == "1"
        cause = (await answer.json())["details"]["causes"][0]
        assert cause["reason"] == "ResourceVersionTooLarge"


async def test_slow_watcher_is_ended_and_costs_no_memory(
    server: ApiServer, client: Client, http: aiohttp.ClientSession
) -> None:
    await client.create(CONFIGMAPS, config_map("big"))
    version = (await client.list(CONFIGMAPS)).resource_version
    query = {"watch": "true", "resourceVersion": version}
    async with http.get(MAPS, params=query, read_bufsize=1 << 16) as answer:
        for turn in range(60):  # without reading
            data = {"x": f"{turn:>6}" + "x" * 900_000}
            await client.patch(CONFIGMAPS, "big", {"data": data}, namespace="default")
        cache = server.store.table("configmaps").watch_cache
        kept = sum(len(event.entry.body) for event in cache.after(cache.floor))
        assert kept <= 1.3 * cache.max_bytes
        last = None
        async with asyncio.timeout(60):
            buffered = b""
            async for chunk in answer.content.iter_any():
                buffered += chunk
                *lines, buffered = buffered.split(b"\n")
                last = lines[-1] if lines else last
        assert last is not None
        end = json.loads(last)
        assert (end["type"], end["object"]["code"]) == ("ERROR", 410)


async def test_watch_ends_after_its_timeout_and_on_shutdown(tmp_path: Path) -> None:
    async with ApiServer(Config(data_dir=tmp_path / "data")) as server:
        http = connect(server)
        brief = {"watch": "true", "timeoutSeconds": "1", **OURS}
        async with http.get(MAPS, params=brief) as answer:
            async with asyncio.timeout(60):
                assert await answer.content.read() == b""
        open_watch = await http.get(MAPS, params={"watch": "true", **OURS})
    async with asyncio.timeout(60):
        assert await open_watch.content.read() == b"", "ended without an error"
    await http.close()


async def test_pages_are_consistent_during_concurrent_writes(
    client: Client, http: aiohttp.ClientSession
) -> None:
    for index in range(10):
        await client.create(CONFIGMAPS, config_map(f"m{index}"))
    names: list[str] = []
    query = {"limit": "3"}
    version = None
    while True:
        async with http.get(MAPS, params=query) as answer:
            page = await answer.json()
        names += [item["metadata"]["name"] for item in page["items"]]
        version = version or page["metadata"]["resourceVersion"]
        assert page["metadata"]["resourceVersion"] == version
        if not page["metadata"].get("continue"):
            break
        assert page["metadata"]["remainingItemCount"] == 11 - len(names)
        query["continue"] = page["metadata"]["continue"]
        await client.create(CONFIGMAPS, config_map(f"m-new-{len(names)}"))
        await client.delete(CONFIGMAPS, f"m{9 - len(names) // 3}", namespace="default")
    assert names == ["kube-root-ca.crt", *(f"m{index}" for index in range(10))]

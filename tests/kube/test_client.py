"""The verbs of the client over a real socket."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest
from aiohttp import web

from hekla.kube import errors
from hekla.kube.calls import PatchKind
from hekla.kube.client import Client
from hekla.kube.resources import (
    CONFIGMAPS,
    DEPLOYMENTS,
    JOBS,
    NODES,
    PODGROUPS,
    PODS,
    QUEUES,
    SERVICE_ACCOUNTS,
)
from tests.kube.fake_server import FakeServer

POD_PATH = "/api/v1/pods"


class Meta(msgspec.Struct):
    name: str
    resourceVersion: str = ""


class Pod(msgspec.Struct):
    metadata: Meta
    spec: dict[str, Any] = {}


async def test_get_decodes_into_a_dict_by_default(client: Client, server: FakeServer) -> None:
    server.put(POD_PATH, "a", "ml", spec={"nodeName": "n1"})
    assert (await client.get(PODS, "a", namespace="ml"))["spec"]["nodeName"] == "n1"


async def test_get_decodes_into_the_type_of_the_resource(
    client: Client, server: FakeServer
) -> None:
    server.put(POD_PATH, "a", "ml")
    pod: Pod = await client.get(PODS.into(Pod), "a", namespace="ml")
    assert isinstance(pod, Pod)
    assert pod.metadata.name == "a"


async def test_get_without_namespace_uses_the_kubeconfigs_namespace(
    client: Client, server: FakeServer
) -> None:
    server.put(POD_PATH, "a", "default")
    await client.get(PODS, "a")
    assert server.seen[-1].path == "/api/v1/namespaces/default/pods/a"


async def test_a_namespace_is_ignored_for_a_cluster_scoped_kind(
    client: Client, server: FakeServer
) -> None:
    server.put("/api/v1/nodes", "n1")
    await client.get(NODES, "n1", namespace="ml")
    assert server.seen[-1].path == "/api/v1/nodes/n1"


async def test_find_returns_none_for_a_missing_object(client: Client) -> None:
    assert await client.find(PODS, "nobody") is None


async def test_missing_object_raises_not_found_with_the_servers_message(client: Client) -> None:
    with pytest.raises(errors.NotFound, match="the server says 404"):
        await client.get(PODS, "nobody")


async def test_list_without_namespace_covers_all_and_joins_the_pages(
    client: Client, server: FakeServer
) -> None:
    for number in range(5):
        server.put(POD_PATH, f"p{number}", f"ns{number % 2}")
    listing = await client.list(PODS, page_size=2)
    assert len(listing) == 5
    assert str(server.version) == listing.resource_version
    assert [seen.query["limit"] for seen in server.seen] == ["2", "2", "2"]


async def test_list_items_get_api_version_and_kind(client: Client, server: FakeServer) -> None:
    server.put(POD_PATH, "a", "ml")
    (pod,) = await client.list(PODS)
    assert (pod["apiVersion"], pod["kind"]) == ("v1", "Pod")


async def test_an_empty_list_that_go_writes_as_null_is_empty(client: Client) -> None:
    assert (await client.list(PODS)).items == []


async def test_list_restarts_as_one_page_when_pages_expire(
    client: Client, server: FakeServer
) -> None:
    for number in range(4):
        server.put(POD_PATH, f"p{number}", "ml")

    async def first_page_then_forget(request: web.Request) -> None:
        server.pages.clear()

    server.script_call(first_page_then_forget)
    server.script_call(first_page_then_forget)
    listing = await client.list(PODS, page_size=2)
    assert [pod["metadata"]["name"] for pod in listing] == ["p0", "p1", "p2", "p3"]
    assert "limit" not in server.seen[-1].query


async def test_selectors_are_sent_in_the_query(client: Client, server: FakeServer) -> None:
    await client.list(PODS, namespace="ml", label_selector="a in (b,c)", field_selector="x!=y")
    want_query = {"labelSelector": "a in (b,c)", "fieldSelector": "x!=y", "limit": "500"}
    assert want_query == server.seen[-1].query


async def test_list_raw_splits_without_decoding(client: Client, server: FakeServer) -> None:
    server.put(POD_PATH, "a", "ml")
    (raw,) = await client.list_raw(PODS)
    assert isinstance(raw, msgspec.Raw)
    assert msgspec.json.decode(raw)["metadata"]["name"] == "a"


async def test_create_uses_the_namespace_of_the_object(client: Client, server: FakeServer) -> None:
    made = await client.create(PODS, {"metadata": {"name": "a", "namespace": "ml"}})
    assert server.seen[-1].path == "/api/v1/namespaces/ml/pods"
    assert made["metadata"]["uid"]


async def test_create_takes_structs_and_bytes(client: Client) -> None:
    assert (await client.create(PODS.into(Pod), Pod(Meta("s")))).metadata.name == "s"
    body = b'{"metadata":{"name":"b"}}'
    assert (await client.create(PODS, body))["metadata"]["name"] == "b"


async def test_create_of_an_existing_name_is_already_exists_and_not_retried(
    client: Client, server: FakeServer, naps: list[float]
) -> None:
    server.put(POD_PATH, "a", "default")
    with pytest.raises(errors.AlreadyExists):
        await client.create(PODS, {"metadata": {"name": "a"}})
    assert naps == []


async def test_dry_run_is_sent_in_the_query(client: Client, server: FakeServer) -> None:
    await client.create(PODS, {"metadata": {"name": "a"}}, dry_run=True, field_manager="me")
    assert server.seen[-1].query == {"dryRun": "All", "fieldManager": "me"}
    assert await client.find(PODS, "a") is None


async def test_replace_with_an_old_version_is_a_conflict(
    client: Client, server: FakeServer
) -> None:
    server.put(POD_PATH, "a", "default")
    stale = {"metadata": {"name": "a", "namespace": "default", "resourceVersion": "1"}}
    with pytest.raises(errors.Conflict) as caught:
        await client.replace(PODS, stale)
    assert not isinstance(caught.value, errors.AlreadyExists)


async def test_each_kind_of_patch_has_its_content_type(client: Client, server: FakeServer) -> None:
    server.put(POD_PATH, "a", "default")
    want_types = {
        "merge": "application/merge-patch+json",
        "strategic": "application/strategic-merge-patch+json",
        "apply": "application/apply-patch+yaml",
    }
    for kind, want_type in want_types.items():
        await client.patch(PODS, "a", {"spec": {}}, kind=cast(PatchKind, kind), field_manager="me")
        assert want_type == server.seen[-1].headers["Content-Type"]


async def test_an_expected_version_makes_a_merge_patch_conditional(
    client: Client, server: FakeServer
) -> None:
    server.put(POD_PATH, "a", "default")
    with pytest.raises(errors.Conflict):
        await client.patch(PODS, "a", {"spec": {"x": 1}}, expect="1")


async def test_an_expected_version_becomes_an_operation_of_a_json_patch(
    client: Client, server: FakeServer
) -> None:
    server.script(200, {"metadata": {"name": "a"}})
    operations = [{"op": "add", "path": "/spec/x", "value": 1}]
    await client.patch(PODS, "a", operations, kind="json", expect="7")
    want_first = {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"}
    assert [want_first, *operations] == server.seen[-1].body


async def test_status_is_patched_at_its_subresource(client: Client, server: FakeServer) -> None:
    server.put("/apis/scheduling.volcano.sh/v1beta1/queues", "q")
    await client.patch_status(QUEUES, "q", {"state": "Open"})
    assert server.seen[-1].path.endswith("/queues/q/status")
    assert server.seen[-1].body == {"status": {"state": "Open"}}


async def test_status_of_a_podgroup_is_patched_in_place(client: Client, server: FakeServer) -> None:
    server.put("/apis/scheduling.volcano.sh/v1beta1/podgroups", "g", "default")
    await client.patch_status(PODGROUPS, "g", {"phase": "Running"})
    assert server.seen[-1].path.endswith("/podgroups/g")


async def test_apply_uses_the_name_of_the_body_and_the_field_manager(
    client: Client, server: FakeServer
) -> None:
    server.put("/api/v1/configmaps", "c", "ml")
    body = {"metadata": {"name": "c", "namespace": "ml"}, "data": {"k": "v"}}
    await client.apply(CONFIGMAPS, body, field_manager="hekla", force=True)
    assert server.seen[-1].path == "/api/v1/namespaces/ml/configmaps/c"
    assert server.seen[-1].query == {"fieldManager": "hekla", "force": "true"}


async def test_delete_sends_grace_propagation_and_preconditions(
    client: Client, server: FakeServer
) -> None:
    uid = server.put(POD_PATH, "a", "default")["metadata"]["uid"]
    assert await client.delete(PODS, "a", grace_period_s=0, propagation="Background", uid=uid)
    body = server.seen[-1].body
    assert body["gracePeriodSeconds"] == 0
    assert body["propagationPolicy"] == "Background"
    assert {"uid": uid} == body["preconditions"]


async def test_delete_refuses_another_object_of_the_same_name(
    client: Client, server: FakeServer
) -> None:
    server.put(POD_PATH, "a", "default")
    with pytest.raises(errors.Conflict):
        await client.delete(PODS, "a", uid="of-its-predecessor")


async def test_delete_with_missing_ok_ignores_a_missing_object(client: Client) -> None:
    assert not await client.delete(PODS, "a", missing_ok=True)
    with pytest.raises(errors.NotFound):
        await client.delete(PODS, "a")


async def test_delete_with_an_empty_name_is_refused(client: Client, server: FakeServer) -> None:
    server.put(POD_PATH, "a", "default")
    with pytest.raises(ValueError, match="name"):
        await client.delete(PODS, "")
    assert server.seen == []


async def test_a_collection_is_deleted_in_one_namespace_only(
    client: Client, server: FakeServer
) -> None:
    server.put(POD_PATH, "a", "ml")
    server.put(POD_PATH, "b", "web")
    await client.delete_collection(PODS, namespace="ml", label_selector="x=y")
    assert [pod["metadata"]["name"] for pod in await client.list(PODS)] == ["b"]
    with pytest.raises(ValueError, match="one namespace"):
        await client.delete_collection(PODS)


async def test_bind_posts_a_binding_with_the_uid_of_the_pod(
    client: Client, server: FakeServer
) -> None:
    server.put(POD_PATH, "a", "ml")
    await client.bind("a", "n1", namespace="ml", uid="u1")
    assert server.seen[-1].path == "/api/v1/namespaces/ml/pods/a/binding"
    assert server.seen[-1].body["metadata"]["uid"] == "u1"
    assert (await client.get(PODS, "a", namespace="ml"))["spec"]["nodeName"] == "n1"


async def test_eviction_forbidden_by_a_budget_is_not_retried(
    client: Client, server: FakeServer, naps: list[float]
) -> None:
    server.put(POD_PATH, "a", "ml")
    server.script(429, headers={"Retry-After": "10"})
    with pytest.raises(errors.TooManyRequests) as caught:
        await client.evict("a", namespace="ml", grace_period_s=5)
    assert caught.value.retry_after_s == 10
    assert naps == []
    assert server.seen[-1].body["deleteOptions"] == {"gracePeriodSeconds": 5}


async def test_scale_patches_the_subresource(client: Client, server: FakeServer) -> None:
    server.put("/apis/apps/v1/deployments", "d", "default", spec={"replicas": 3})
    await client.scale(DEPLOYMENTS, "d", 5)
    assert server.seen[-1].method == "PATCH"
    assert server.seen[-1].path.endswith("/deployments/d/scale")
    assert (await client.get_scale(DEPLOYMENTS, "d"))["spec"] == {"replicas": 3}


async def test_created_token_is_hidden_in_its_repr(client: Client, server: FakeServer) -> None:
    token = await client.create_token("builder", namespace="ml", expiration_s=600)
    assert token.value == "fresh-token"
    assert "fresh-token" not in repr(token)
    assert server.seen[-1].body["spec"] == {"audiences": [], "expirationSeconds": 600}
    assert server.seen[-1].path.endswith(f"/{SERVICE_ACCOUNTS.plural}/builder/token")


async def test_logs_stream_as_bytes(client: Client, server: FakeServer) -> None:
    server.put(POD_PATH, "a", "default")
    server.logs = b"one\ntwo\n" * 1000
    async with client.logs("a", container="main", tail_lines=5, timestamps=True) as chunks:
        assert server.logs == b"".join([chunk async for chunk in chunks])
    want_query = {"container": "main", "tailLines": "5", "timestamps": "true"}
    assert want_query == server.seen[-1].query


async def test_any_kind_can_be_named_by_its_group_and_plural(
    client: Client, server: FakeServer
) -> None:
    widgets = client.resource("example.com/v1", "widgets", kind="Widget", namespaced=False)
    server.put("/apis/example.com/v1/widgets", "w")
    assert (await client.get(widgets, "w"))["metadata"]["name"] == "w"


async def test_request_outside_the_resource_paths_returns_bytes(client: Client) -> None:
    assert msgspec.json.decode(await client.request("GET", "/version"))["gitVersion"] == "v1.36.0"


async def test_response_of_the_wrong_type_is_a_protocol_error_with_the_field(
    client: Client, server: FakeServer
) -> None:
    server.script(200, {"metadata": {"name": 7}})
    with pytest.raises(errors.ProtocolError, match=r"metadata\.name"):
        await client.get(PODS.into(Pod), "a")


async def test_watch_yields_events_and_advances_with_bookmarks(
    client: Client, server: FakeServer
) -> None:
    listing = await client.list(JOBS)
    path = "/apis/batch.volcano.sh/v1alpha1/jobs"
    async with client.watch(JOBS, resource_version=listing.resource_version) as events:
        await server.watching()
        server.put(path, "j", "ml")
        server.put(path, "j", "ml")
        server.remove(path, "j", "ml")
        server.put(POD_PATH, "unrelated", "ml")
        server.bookmark(path)
        server.end_watches(path)
        seen = [(event.type, event.identity.name) async for event in events]
    assert seen == [("ADDED", "j"), ("MODIFIED", "j"), ("DELETED", "j")]
    assert str(server.version) == events.resource_version


async def test_watch_from_an_expired_version_raises_gone(
    client: Client, server: FakeServer
) -> None:
    server.put(POD_PATH, "a", "ml")
    server.forget(POD_PATH)
    async with client.watch(PODS, resource_version="1") as events:
        with pytest.raises(errors.Gone):
            await anext(events)


async def test_broken_watch_raises_connection_lost_after_its_events(
    client: Client, server: FakeServer
) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        line = b'{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"5"}}}\n'
        await response.write(line + line[:10])
        assert request.transport is not None
        request.transport.abort()
        return response

    server.script_call(cut)
    async with client.watch(PODS) as events:
        assert (await anext(events)).identity.name == "a"
        with pytest.raises(errors.ConnectionLost):
            await anext(events)
    assert events.resource_version == "5"

"""The garbage collector: owner references and deletion propagation."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.kube.client import Client
from hekla.kube.errors import NotFound
from hekla.kube.resources import (
    CONFIGMAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    NAMESPACES,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
    resource,
)
from tests.apiserver.objects import config_map, namespace, owned_by, pod


async def gone(client: Client, resource: Any, name: str, namespace: str | None = "default") -> None:
    """Watch until an object does not exist."""
    listed = await client.list(resource, namespace=namespace)
    if name not in [item["metadata"]["name"] for item in listed.items]:
        return
    async with client.watch(
        resource, namespace=namespace, resource_version=listed.resource_version, timeout_s=60
    ) as events:
        async for event in events:
            if event.type == "DELETED" and event.object["metadata"]["name"] == name:
                return
    raise AssertionError(f"{name} is still there")


async def child_of(client: Client, name: str, *owners: dict[str, Any], blocks: bool = False) -> Any:
    body = config_map(name)
    body["metadata"]["ownerReferences"] = [
        owned_by(owner, kind="ConfigMap", blocks=blocks) for owner in owners
    ]
    return await client.create(CONFIGMAPS, body)


async def test_background_deletion_deletes_a_tree_of_dependents(client: Client) -> None:
    root = await client.create(CONFIGMAPS, config_map("root"))
    child = await child_of(client, "child", root)
    await child_of(client, "grandchild", child)
    await client.delete(CONFIGMAPS, "root", namespace="default")
    await gone(client, CONFIGMAPS, "child")
    await gone(client, CONFIGMAPS, "grandchild")


async def test_object_with_a_second_owner_keeps_only_that_owner(client: Client) -> None:
    first = await client.create(CONFIGMAPS, config_map("first"))
    second = await client.create(CONFIGMAPS, config_map("second"))
    child = await child_of(client, "child", first, second)
    async with client.watch(
        CONFIGMAPS, namespace="default", resource_version=child["metadata"]["resourceVersion"]
    ) as events:
        await client.delete(CONFIGMAPS, "first", namespace="default")
        async for event in events:
            if event.object["metadata"]["name"] == "child":
                owners = event.object["metadata"]["ownerReferences"]
                assert [owner["name"] for owner in owners] == ["second"]
                break


async def test_foreground_deletion_keeps_the_owner_until_blocking_dependents_are_deleted(
    client: Client,
) -> None:
    root = await client.create(CONFIGMAPS, config_map("root"))
    body = config_map("child")
    body["metadata"]["ownerReferences"] = [owned_by(root, kind="ConfigMap", blocks=True)]
    body["metadata"]["finalizers"] = ["example.com/wait"]
    await client.create(CONFIGMAPS, body)
    await client.delete(CONFIGMAPS, "root", namespace="default", propagation="Foreground")
    waiting = await client.get(CONFIGMAPS, "root", namespace="default")
    assert waiting["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert "deletionTimestamp" in waiting["metadata"]
    await client.patch(CONFIGMAPS, "child", {"metadata": {"finalizers": None}}, namespace="default")
    await gone(client, CONFIGMAPS, "child")
    await gone(client, CONFIGMAPS, "root")


async def test_orphan_deletion_removes_owner_references(client: Client) -> None:
    root = await client.create(CONFIGMAPS, config_map("root"))
    await child_of(client, "child", root)
    await client.delete(CONFIGMAPS, "root", namespace="default", propagation="Orphan")
    await gone(client, CONFIGMAPS, "root")
    child = await client.get(CONFIGMAPS, "child", namespace="default")
    assert "ownerReferences" not in child["metadata"]


async def test_object_with_a_missing_owner_is_deleted(client: Client) -> None:
    ghost = {"metadata": {"name": "ghost", "uid": "00000000-0000-4000-8000-000000000000"}}
    await child_of(client, "child", ghost)
    await gone(client, CONFIGMAPS, "child")


async def test_object_with_an_owner_of_an_unserved_kind_is_kept(client: Client) -> None:
    body = config_map("child")
    body["metadata"]["ownerReferences"] = [
        {"apiVersion": "example.com/v1", "kind": "Alien", "name": "x", "uid": "u-1"}
    ]
    await client.create(CONFIGMAPS, body)
    await client.create(CONFIGMAPS, config_map("later"))
    await client.delete(CONFIGMAPS, "later", namespace="default")
    assert await client.get(CONFIGMAPS, "child", namespace="default")


async def test_finalizer_delays_deletion_and_no_new_one_can_be_added(client: Client) -> None:
    body = config_map("held")
    body["metadata"]["finalizers"] = ["example.com/hold"]
    await client.create(CONFIGMAPS, body)
    await client.delete(CONFIGMAPS, "held", namespace="default")
    with pytest.raises(Exception, match="no new finalizers"):
        await client.patch(
            CONFIGMAPS,
            "held",
            {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}},
            namespace="default",
        )
    await client.patch(CONFIGMAPS, "held", {"metadata": {"finalizers": []}}, namespace="default")
    with pytest.raises(NotFound):
        await client.get(CONFIGMAPS, "held", namespace="default")


async def test_namespace_is_deleted_after_its_objects(client: Client) -> None:
    await client.create(NAMESPACES, namespace("team"))
    await client.create(CONFIGMAPS, config_map("c", "team"))
    await client.create(SECRETS, {"metadata": {"name": "s", "namespace": "team"}})
    held = pod("held", "team", metadata={"finalizers": ["example.com/hold"]})
    await client.create(PODS, held)
    await client.delete(NAMESPACES, "team")
    going = await client.get(NAMESPACES, "team")
    assert going["status"]["phase"] == "Terminating"
    with pytest.raises(Exception, match="being terminated"):
        await client.create(CONFIGMAPS, config_map("late", "team"))
    await client.patch(PODS, "held", {"metadata": {"finalizers": None}}, namespace="team")
    await gone(client, NAMESPACES, "team", None)
    assert not (await client.list(CONFIGMAPS, namespace="team")).items


async def test_every_namespace_gets_a_default_service_account(client: Client) -> None:
    await client.create(NAMESPACES, namespace("team"))
    async with client.watch(SERVICE_ACCOUNTS, namespace="team", timeout_s=60) as events:
        async for event in events:
            assert event.object["metadata"]["name"] == "default"
            break


async def test_system_namespaces_cannot_be_deleted(client: Client) -> None:
    for name in ("default", "kube-system"):
        with pytest.raises(Exception, match="may not be deleted"):
            await client.delete(NAMESPACES, name)


async def test_terminating_pod_of_a_deleted_node_is_deleted(client: Client) -> None:
    await client.create(PODS, pod("lost"))
    await client.bind("lost", "never-was", namespace="default")
    await client.delete(PODS, "lost", namespace="default")
    await gone(client, PODS, "lost")


async def test_deletion_timestamp_in_a_schema_or_annotation_deletes_nothing(client: Client) -> None:
    """Schemas of pod templates contain `deletionTimestamp`."""
    kept = resource("example.com/v1", "gadgets", kind="Gadget")
    fields = {"deletionTimestamp": {"type": "string"}}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    definition = {"metadata": {"name": "gadgets.example.com"}, "spec": spec}
    await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
    body = namespace("careful")
    body["metadata"]["annotations"] = {"deletionTimestamp": "never"}
    await client.create(NAMESPACES, body)
    await client.create(kept, {"metadata": {"name": "one"}}, namespace="careful")
    for number in range(2):  # after the second round, everything due in the first is done
        root = await client.create(CONFIGMAPS, config_map(f"root-{number}"))
        await child_of(client, f"child-{number}", root)
        await client.delete(CONFIGMAPS, f"root-{number}", namespace="default")
        await gone(client, CONFIGMAPS, f"child-{number}")
    assert await client.find(kept, "one", namespace="careful") is not None


async def test_cycle_of_owners_is_deleted(client: Client) -> None:
    first = await client.create(CONFIGMAPS, config_map("first"))
    second = await child_of(client, "second", first, blocks=True)
    third = await child_of(client, "third", second, blocks=True)
    closing = {"metadata": {"ownerReferences": [owned_by(third, kind="ConfigMap", blocks=True)]}}
    await client.patch(CONFIGMAPS, "first", closing, namespace="default")
    await client.delete(CONFIGMAPS, "first", namespace="default", propagation="Foreground")
    for name in ("first", "second", "third"):
        await gone(client, CONFIGMAPS, name)


async def test_foreground_deletion_keeps_dependents_with_another_owner(client: Client) -> None:
    leaving = await client.create(CONFIGMAPS, config_map("leaving"))
    staying = await client.create(CONFIGMAPS, config_map("staying"))
    await child_of(client, "child", leaving, staying, blocks=True)
    await client.delete(CONFIGMAPS, "leaving", namespace="default", propagation="Foreground")
    await gone(client, CONFIGMAPS, "leaving")
    child = await client.get(CONFIGMAPS, "child", namespace="default")
    assert [owner["name"] for owner in child["metadata"]["ownerReferences"]] == ["staying"]
    assert "deletionTimestamp" not in child["metadata"]

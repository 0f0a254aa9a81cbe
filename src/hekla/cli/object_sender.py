"""Send the objects of manifests: create, replace or apply them.

    job, done = await ObjectSender(client).send(manifest)      # "jobs.batch.volcano.sh/a created"

Jobs and JobFlows are created, and replaced only if requested: applying a finished job would not run
it. Other objects are applied if they exist.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
from typing import Any, Final

import click
import msgspec

from hekla.api.wellknown import BATCH_API, FLOW_API
from hekla.kube.client import Client
from hekla.kube.errors import AlreadyExists, ApiError
from hekla.kube.informers import Informer
from hekla.kube.resources import Resource, resource
from hekla.units.objects import Object

FIELD_MANAGER: Final = "hekla-run"
JOB: Final = (BATCH_API, "Job")
FLOW: Final = (FLOW_API, "JobFlow")


def kind_of(obj: Object) -> tuple[str, str]:
    """Return the API version and the kind of an object."""
    return obj["apiVersion"], obj["kind"]


class ObjectSender:
    """Sends objects to one cluster; with `replace`, existing jobs are deleted first."""

    def __init__(self, client: Client, *, replace: bool = False) -> None:
        self._client = client
        self._replace = replace

    async def send(self, obj: Object) -> tuple[Object, str]:
        """Send an object; return it as stored, and a line that says what was done."""
        handle = await self._resource(obj)
        try:
            stored: Object = await self._client.create(handle, obj)
            done = "created"
        except AlreadyExists:
            stored, done = await self._replace_or_apply(handle, obj)
        return stored, f"{handle}/{stored['metadata']['name']} {done}"

    async def _replace_or_apply(self, handle: Resource[Any], obj: Object) -> tuple[Object, str]:
        name = obj["metadata"]["name"]
        namespace = None
        if handle.namespaced:
            namespace = obj["metadata"].get("namespace") or self._client.namespace
        if kind_of(obj) not in (JOB, FLOW):
            applied = await self._client.apply(
                handle, obj, namespace=namespace, field_manager=FIELD_MANAGER, force=True
            )
            return applied, "configured"
        if not self._replace:
            raise click.ClickException(
                f"{handle}/{name} already exists; `hekla run --replace` deletes it first, "
                f"`hekla job view {name}` shows it"
            )
        await self._delete(handle, name, namespace)
        return await self._client.create(handle, obj), "replaced"

    async def _delete(self, handle: Resource[Any], name: str, namespace: str | None) -> None:
        gone = asyncio.Event()
        watched: Informer[Object] = Informer(
            self._client, handle, dict, namespace=namespace, field_selector=f"metadata.name={name}"
        )
        watched.add_handler(lambda _, __, new: gone.set() if new is None else None)
        async with watched:
            await watched.synced()
            await self._client.delete(handle, name, namespace=namespace)
            await gone.wait()

    async def _resource(self, obj: Object) -> Resource[Any]:
        """Return the API resource of an object's kind, from discovery."""
        version, kind = kind_of(obj)
        try:
            listed = await self._served(version)
        except ApiError as error:
            raise click.ClickException(await self._unknown(version, kind)) from error
        for one in listed:
            if one["kind"] == kind:
                return resource(version, one["name"], kind=kind, namespaced=one["namespaced"])
        raise click.ClickException(await self._unknown(version, kind))

    async def _served(self, version: str) -> list[Object]:
        """Return the resources of an API version, without subresources."""
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        listed = msgspec.json.decode(await self._client.request("GET", root))
        return [one for one in listed["resources"] if "/" not in one["name"]]

    async def _unknown(self, version: str, kind: str) -> str:
        """Return that the cluster does not serve a kind, and which versions or kinds it serves."""
        served: dict[str, set[str]] = {}
        for each in await self._versions():
            with contextlib.suppress(ApiError):  # of an aggregated server that is away
                for one in await self._served(each):
                    served.setdefault(one["kind"], set()).add(each)
        text = f"this cluster has no kind {kind} in {version}"
        if kind in served:
            return f"{text}; it serves {kind} in {', '.join(sorted(served[kind]))}"
        close = difflib.get_close_matches(kind, served, n=1)
        if close:
            return f"{text}; did you mean {close[0]} in {', '.join(sorted(served[close[0]]))}?"
        return f"{text}, nor in another version; `kubectl api-resources` lists its kinds"

    async def _versions(self) -> list[str]:
        groups = msgspec.json.decode(await self._client.request("GET", "/apis"))["groups"]
        return ["v1", *(one["groupVersion"] for group in groups for one in group["versions"])]

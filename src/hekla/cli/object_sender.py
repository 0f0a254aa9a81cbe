"""Send the objects of manifests: create, replace or apply them.

    job, done = await ObjectSender(client).send(manifest)      # "jobs.batch.volcano.sh/a created"

Jobs and JobFlows are created, and replaced only if requested: applying a finished job would not run
it. Other objects are applied if they exist.
"""

from __future__ import annotations

import asyncio
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
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        try:
            listed = msgspec.json.decode(await self._client.request("GET", root))
        except ApiError as error:
            raise click.ClickException(f"{kind}: this cluster has no {version}") from error
        for one in listed["resources"]:
            if one["kind"] == kind and "/" not in one["name"]:
                return resource(version, one["name"], kind=kind, namespaced=one["namespaced"])
        raise click.ClickException(f"this cluster has no kind {kind} in {version}")

"""Create, update and delete the objects that job plugins request.

Note: these objects include Secrets, so the controllers have no right to read objects of the kind.
They read with an empty patch that changes nothing. A ValidatingAdmissionPolicy of the chart refuses
their patches of objects that no job owns.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from hekla.controllers.job.plugins import ManagedObject
from hekla.controllers.objects import is_controlled_by, key_of, uid_of
from hekla.kube.client import Client
from hekla.kube.errors import AlreadyExists, Forbidden, KubeError, NotFound
from hekla.kube.resources import Resource
from hekla.units.objects import Object
from hekla.units.patches import merge_patch

POLICY: Final = "hekla-controllers-objects"
"""The chart's policy for what the controllers may change."""


class ForeignObject(KubeError):
    """An object that the job does not own has a name that the job needs."""

    def __init__(self, resource: Resource[Object], namespace: str, name: str) -> None:
        super().__init__(
            f"{resource.kind} {namespace}/{name} exists and is not owned by this job; "
            "delete it or give the job another name"
        )


async def ensure_object(client: Client, job: Object, managed: ManagedObject) -> None:
    """Create a plugin's object or update it; raise ForeignObject for one of another owner."""
    resource, body, namespace = managed.resource, managed.body, key_of(job)[0]
    name = body["metadata"]["name"]
    found = await _find(client, resource, namespace, name)
    if found is None:
        if managed.make_once is not None:
            body = merge_patch(body, await asyncio.to_thread(managed.make_once))
        try:
            await client.create(resource, body, namespace=namespace)
            return
        except AlreadyExists:
            found = await _find(client, resource, namespace, name)
    if found is None or not is_controlled_by(found, uid_of(job)):
        raise ForeignObject(resource, namespace, name)
    patch = {
        part: body[part]
        for part in body
        if part != "metadata" and not _covers(found.get(part), body[part])
    }
    if patch:
        await client.patch(resource, name, patch, namespace=namespace)


async def delete_object(client: Client, job: Object, managed: ManagedObject) -> None:
    """Delete a plugin's object, if the job owns it."""
    name, namespace = managed.body["metadata"]["name"], key_of(job)[0]
    try:
        found = await _find(client, managed.resource, namespace, name)
    except ForeignObject:
        return
    if found is not None and is_controlled_by(found, uid_of(job)):
        await client.delete(
            managed.resource,
            name,
            namespace=namespace,
            uid=uid_of(found),
            missing_ok=True,
        )


async def _find(
    client: Client, resource: Resource[Object], namespace: str, name: str
) -> Object | None:
    """Return an object by an empty patch; raise ForeignObject if the policy protects it."""
    try:
        return await client.patch(resource, name, {}, namespace=namespace, dry_run=True)
    except NotFound:
        return None
    except Forbidden as error:
        if POLICY in str(error):
            raise ForeignObject(resource, namespace, name) from error
        raise


def _covers(found: Any, wanted: Any) -> bool:
    """Return whether a stored value has all that is wanted.

    Fields that the server added may stay.
    """
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            _covers(found.get(key), value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(found) == len(wanted)
            and all(_covers(a, b) for a, b in zip(found, wanted, strict=True))
        )
    return bool(found == wanted) or (not found and not wanted)

"""What the caller may see of a cluster."""

from __future__ import annotations

from typing import Any

from hekla.kube.client import Client
from hekla.kube.errors import Forbidden
from hekla.kube.resources import Resource


async def refusal_to_list(client: Client, resource: Resource[Any], namespace: str | None) -> str:
    """Return why the caller may not list a kind; empty if that is allowed."""
    try:
        async for _ in client.pages(resource, namespace=namespace, page_size=1):
            break
    except Forbidden as error:
        return error.message
    return ""

"""The lease by which a node agent reports that it lives, as a kubelet's."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from hekla.api.wellknown import KUBE_NODE_LEASE
from hekla.kube.client import Client
from hekla.kube.errors import KubeError, NotFound
from hekla.kube.resources import LEASES
from hekla.units.clock import Clock
from hekla.units.objects import Object
from hekla.units.timestamps import format_micro_time

log = logging.getLogger("hekla.nodeagent")

DURATION_S: Final = 40
RENEW_S: Final = 10.0
"""A quarter of the duration, as the kubelet."""


class NodeLease:
    """Renews the lease of a node."""

    def __init__(self, client: Client, clock: Clock, node: Object) -> None:
        self._client = client
        self._clock = clock
        self._node = node

    async def renew_forever(self, on_renewed: Callable[[], Awaitable[None]]) -> None:
        """Renew the lease until cancelled, and call `on_renewed` each time."""
        while True:
            try:
                await self.renew()
                await on_renewed()
            except KubeError as error:
                name = self._node["metadata"]["name"]
                log.warning("the lease of node %s is not renewed: %s; trying again", name, error)
            await self._clock.sleep(RENEW_S)

    async def renew(self) -> None:
        """Write the lease; create it if it does not exist."""
        metadata = self._node["metadata"]
        spec = {
            "holderIdentity": metadata["name"],
            "leaseDurationSeconds": DURATION_S,
            "renewTime": format_micro_time(self._clock.now()),
        }
        # The lease goes with its node.
        owner = {
            "apiVersion": "v1",
            "kind": "Node",
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
        body = {
            "metadata": {
                "name": metadata["name"],
                "namespace": KUBE_NODE_LEASE,
                "ownerReferences": [owner],
            },
            "spec": spec,
        }
        try:
            await self._client.patch(LEASES, metadata["name"], body, namespace=KUBE_NODE_LEASE)
        except NotFound:
            await self._client.create(LEASES, body)

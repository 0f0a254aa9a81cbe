"""Changes of several objects, over watches that may end at any time."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from hekla.kube.errors import Gone, TransportError
from hekla.kube.kubeconfig import ClusterConfig
from hekla.kube.resources import Resource
from hekla.kube.responses import Listing, WatchEvent
from hekla.kube.sync_client import SyncClient
from hekla.sdk.outages import Outage
from hekla.units.objects import Object

WATCH_S = 10.0
"""How long a thread may stay in a read after it was told to stop."""

Change = Listing[Object] | WatchEvent[Object]


def changes(
    config: ClusterConfig,
    resource: Resource[Object],
    *,
    namespace: str,
    labels: str = "",
    fields: str = "",
    stopped: threading.Event,
) -> Iterator[Change]:
    """Yield a listing, then each event; after a gap a new listing; until `stopped` is set.

    A server that restarts is a gap; see `Outage`.
    """
    outage = Outage()
    with SyncClient(config, component="sdk") as client:
        while not stopped.is_set():
            try:
                listed = client.list(
                    resource, namespace=namespace, label_selector=labels, field_selector=fields
                )
                outage.reached()
                yield listed
                version = listed.resource_version
                while not stopped.is_set():
                    with client.watch(
                        resource,
                        namespace=namespace,
                        label_selector=labels,
                        field_selector=fields,
                        resource_version=version,
                        timeout_s=WATCH_S,
                    ) as events:
                        for event in events:
                            yield event
                            if stopped.is_set():
                                return
                        version = events.resource_version
            except Gone:
                continue
            except TransportError as error:
                stopped.wait(outage.pause_s(error))


def objects(change: Change) -> list[Object]:
    """Return the objects of a change in their last state."""
    return change.items if isinstance(change, Listing) else [change.object]

"""The controller of HyperNodes: discovery from node labels, and the node count of each.

`discovery` decides, this module watches and writes. Nothing is polled: the `interval` of a source
is ignored, as every label change is handled at once.
"""

from __future__ import annotations

import logging
import os
from typing import Final

from hekla.api import wellknown
from hekla.controllers.hypernode import discovery
from hekla.controllers.hypernode.discovery import (
    ConfigError,
    CreateHyperNode,
    DeleteHyperNode,
    Effect,
    PatchHyperNode,
)
from hekla.controllers.informers import InformerFactory
from hekla.controllers.metrics import Metrics
from hekla.controllers.objects import Key, is_deleting, labels_of, status_of
from hekla.controllers.reconciler import Reconciler
from hekla.kube.errors import AlreadyExists
from hekla.kube.recorder import EventRecorder
from hekla.kube.resources import CONFIGMAPS, HYPER_NODES, NODES
from hekla.units.objects import Object

log = logging.getLogger("hekla.controllers")

DISCOVERY: Final = ("work", "discovery")
COUNTS: Final = ("work", "counts")


class HyperNodeController(Reconciler):
    """Reconciles two keys: discovery from labels, and node counts."""

    name = "hyperNode-controller"
    workers = 1

    def __init__(
        self, informers: InformerFactory, recorder: EventRecorder, metrics: Metrics
    ) -> None:
        super().__init__(informers, recorder, metrics)
        release = os.environ.get("HELM_RELEASE_NAME") or "volcano"
        self._config_key = (
            os.environ.get("KUBE_POD_NAMESPACE") or wellknown.SYSTEM_NAMESPACE,
            f"{release}-controller-configmap",
        )
        self._hypernodes = informers.cache(HYPER_NODES)
        self._nodes = informers.partial_cache(NODES, transform=_name_and_labels)
        self._config = informers.partial_cache(
            CONFIGMAPS, namespace=self._config_key[0], name=self._config_key[1]
        )
        self._hypernodes.add_handler(self._on_hypernode)
        self._nodes.add_handler(self._on_node)
        self._config.add_handler(lambda *_: self.queue.add(DISCOVERY))

    def _on_hypernode(self, event: str, old: Object | None, new: Object | None) -> None:
        if old is not None and new is not None and old.get("spec") == new.get("spec"):
            if labels_of(old) != labels_of(new):
                self.queue.add(DISCOVERY)
            return
        self.queue.add(COUNTS)
        self.queue.add(DISCOVERY)

    def _on_node(self, event: str, old: Object | None, new: Object | None) -> None:
        if old is None or new is None or labels_of(old) != labels_of(new):
            self.queue.add(DISCOVERY)
            self.queue.add(COUNTS)

    async def reconcile(self, key: Key) -> float | None:
        if key == DISCOVERY:
            await self._discover()
        else:
            await self._count()
        return None

    def _known(self) -> list[Object]:
        """Return all HyperNodes, our own writes included."""
        found = (
            self._hypernodes.get("", each["metadata"]["name"]) for each in self._hypernodes.all()
        )
        return [each for each in found if each is not None and not is_deleting(each)]

    async def _discover(self) -> None:
        config = self._config.get(*self._config_key)
        if config is None:
            return
        try:
            text = (config.get("data") or {}).get(wellknown.CONTROLLER_CONFIG_KEY) or ""
            types, unknown = discovery.parse_config(text)
            for source in unknown:
                message = f"source {source!r} is not supported; use 'label'"
                self.emit_event(CONFIGMAPS, config, "Warning", "SourceNotSupported", message)
            if types is None:
                return
            effects = discovery.discover(types, self._nodes.all(), self._known())
        except ConfigError as problem:
            message = f"{wellknown.CONTROLLER_CONFIG_KEY}: {problem}; HyperNodes are not changed"
            self.emit_event(CONFIGMAPS, config, "Warning", "InvalidConfiguration", message)
            return
        for effect in effects:
            await self._apply(effect)

    async def _apply(self, effect: Effect) -> None:
        match effect:
            case CreateHyperNode(body):
                try:
                    self._hypernodes.record_write(await self.client.create(HYPER_NODES, body))
                except AlreadyExists:
                    log.debug("HyperNode %s already exists", body["metadata"]["name"])
            case PatchHyperNode(name, patch):
                self._hypernodes.record_write(await self.client.patch(HYPER_NODES, name, patch))
            case DeleteHyperNode(name, uid):
                await self.client.delete(HYPER_NODES, name, uid=uid, missing_ok=True)

    async def _count(self) -> None:
        known = self._known()
        counts = discovery.node_counts(known, self._nodes.all())
        for each in known:
            name = each["metadata"]["name"]
            if status_of(each).get("nodeCount", 0) != counts[name]:
                written = await self.client.patch_status(
                    HYPER_NODES, name, {"nodeCount": counts[name]}
                )
                self._hypernodes.record_write(written)


def _name_and_labels(node: Object) -> Object:
    """Return only the fields that are read, as thousands of nodes are cached."""
    meta = node["metadata"]
    kept = ("name", "uid", "resourceVersion", "labels")
    return {"metadata": {key: meta[key] for key in kept if key in meta}}

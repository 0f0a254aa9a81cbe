"""Default objects of each namespace: ServiceAccount `default` and ConfigMap `kube-root-ca.crt`.

Pods and operators rely on both. They are recreated after deletion, and the ConfigMap is restored
after changes, as by Kubernetes' controllers.
"""

from __future__ import annotations

import contextlib

from hekla.apiserver import errors
from hekla.apiserver.registry.resources import Resources
from hekla.apiserver.storage.watch_cache import Event
from hekla.units.objects import Object

ACCOUNT = "default"
ROOT_CA = "kube-root-ca.crt"
_DESCRIPTION = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal "
    "endpoints such as the internal service IP or kubernetes.default.svc. No other usage is "
    "guaranteed across distributions of Kubernetes clusters."
)
_KEPT = {"serviceaccounts": ACCOUNT, "configmaps": ROOT_CA}


class NamespaceDefaults:
    """Creates default objects: `observe` each change, `reconcile` while not idle."""

    def __init__(self, resources: Resources, authority: str) -> None:
        self._resources = resources
        self._authority = authority
        self._pending: dict[str, None] = {}

    @property
    def is_idle(self) -> bool:
        return not self._pending

    def observe(self, table: str, event: Event) -> None:
        if table == "namespaces":
            if event.removed or event.entry.is_terminating:
                self._pending.pop(event.entry.key, None)
            else:
                self._pending[event.entry.key] = None
            return
        namespace, _, name = event.entry.key.partition("/")
        if _KEPT.get(table) == name and (event.removed or event.previous is not None):
            self._pending[namespace] = None

    async def reconcile(self) -> None:
        while self._pending:
            namespace = next(iter(self._pending))
            entry = self._resources.store.head("namespaces", namespace)
            if entry is not None and not entry.is_terminating:
                await self._ensure_account(namespace)
                await self._ensure_certificate(namespace)
            self._pending.pop(namespace, None)

    async def _ensure_account(self, namespace: str) -> None:
        if self._resources.store.head("serviceaccounts", f"{namespace}/{ACCOUNT}") is None:
            await self._create("ServiceAccount", namespace, {"metadata": {"name": ACCOUNT}})

    async def _ensure_certificate(self, namespace: str) -> None:
        wanted = {"ca.crt": self._authority}
        entry = self._resources.store.head("configmaps", f"{namespace}/{ROOT_CA}")
        if entry is None:
            annotations = {"kubernetes.io/description": _DESCRIPTION}
            metadata = {"name": ROOT_CA, "annotations": annotations}
            await self._create("ConfigMap", namespace, {"metadata": metadata, "data": wanted})
            return

        def restore(obj: Object) -> Object:
            obj.pop("binaryData", None)
            return {**obj, "data": dict(wanted)}

        served = self._resources.registry.by_kind("v1", "ConfigMap")
        assert served is not None
        with contextlib.suppress(errors.StatusError):
            await self._resources.update(served, namespace, ROOT_CA, restore)

    async def _create(self, kind: str, namespace: str, obj: Object) -> None:
        served = self._resources.registry.by_kind("v1", kind)
        assert served is not None
        # the namespace is terminating, or the object exists by now
        with contextlib.suppress(errors.StatusError):
            await self._resources.create(served, namespace, obj)

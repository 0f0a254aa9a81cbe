"""ResourceQuotas: usage of a namespace, counted in the transaction that uses it.

Admission adds a new object's usage to `status.used` in the same transaction, so concurrent creates
cannot exceed a quota. `recount` computes the usage from what exists after a pod finished, an object
was deleted or a quota changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from hekla.api.pod_resources import Amounts, add, quota_usage
from hekla.apiserver.admission.plugin import AdmissionPlugin, Attributes, RelatedWrite
from hekla.apiserver.storage.watch_cache import Entry
from hekla.units.objects import Object
from hekla.units.quantity import Quantity, parse_quantity

if TYPE_CHECKING:
    from hekla.apiserver.registry.resources import Resources

QUOTAS = "resourcequotas"
_ONE = Quantity.from_int(1)
_ZERO = Quantity.from_int(0)
_FINISHED = ("Succeeded", "Failed")
# Kinds with a short name in quotas, besides count/<kind>.
_BY_KIND = {
    "configmaps": "configmaps",
    "secrets": "secrets",
    "services": "services",
    "replicationcontrollers": "replicationcontrollers",
    "resourcequotas": "resourcequotas",
    "persistentvolumeclaims": "persistentvolumeclaims",
}
# With one of these in a quota, each container must specify it.
_MUST_BE_SAID = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")


class ResourceQuotas(AdmissionPlugin):
    def validate(self, attributes: Attributes) -> list[RelatedWrite]:
        if attributes.verb != "create" or not attributes.served.kind.namespaced:
            return []
        quotas = list(_quotas(self.resources, attributes.namespace))
        if not quotas:
            return []
        usage = usage_of(attributes.served.storage, attributes.obj)
        also = []
        for entry, quota in quotas:
            charged = self._charge(attributes, quota, usage)
            if charged:
                also.append(RelatedWrite(QUOTAS, entry, quota))
        return also

    def _charge(self, attributes: Attributes, quota: Object, usage: Amounts) -> bool:
        """Add usage to a quota's status; raise if it exceeds. False if the quota does not apply."""
        limits = _spec(quota).get("hard") or {}
        hard = {name: parse_quantity(text) for name, text in limits.items()}
        if not in_scope(quota, attributes.served.storage, attributes.obj):
            return False
        name = quota["metadata"]["name"]
        if attributes.served.storage == "pods":
            missing = [key for key in _MUST_BE_SAID if key in hard and key not in usage]
            if missing:
                raise attributes.forbid(f"failed quota: {name}: must specify {', '.join(missing)}")
        concerned = {key: amount for key, amount in usage.items() if key in hard}
        if not concerned:
            return False
        status = quota.setdefault("status", {})
        used = {key: parse_quantity(text) for key, text in (status.get("used") or {}).items()}
        after = {key: used.get(key, _ZERO) + amount for key, amount in concerned.items()}
        over = sorted(key for key, amount in after.items() if amount > hard[key])
        if over:
            raise attributes.forbid(
                f"exceeded quota: {name}, requested: {_shown(concerned, over)}, "
                f"used: {_shown(used, over)}, limited: {_shown(hard, over)}"
            )
        status["hard"] = limits
        status["used"] = {**(status.get("used") or {}), **{k: str(v) for k, v in after.items()}}
        return True


def _shown(amounts: Mapping[str, Quantity], names: list[str]) -> str:
    return ",".join(f"{name}={amounts.get(name, _ZERO)}" for name in names)


def _quotas(resources: Resources, namespace: str) -> Iterator[tuple[Entry, Object]]:
    for entry in resources.store.heads(QUOTAS, f"{namespace}/"):
        yield entry, msgspec.json.decode(entry.body)


def usage_of(storage: str, obj: Object) -> Amounts:
    """Return an object's usage by each name that a quota may use."""
    group, _, plural = storage.rpartition("/")
    counted = f"count/{plural}.{group}" if group else f"count/{plural}"
    used: Amounts = {counted: _ONE}
    if storage in _BY_KIND:
        used[_BY_KIND[storage]] = _ONE
    if storage == "pods":
        # A finished pod still counts as an object; it uses no resources.
        if (obj.get("status") or {}).get("phase") not in _FINISHED:
            add(used, quota_usage(obj.get("spec") or {}))
            used[counted] = _ONE
    elif storage == "services":
        kind = obj["spec"].get("type")
        if kind == "LoadBalancer":
            used["services.loadbalancers"] = _ONE
        if kind in ("NodePort", "LoadBalancer"):
            used["services.nodeports"] = Quantity.from_int(len(obj["spec"].get("ports") or ()))
    elif storage == "persistentvolumeclaims":
        requested = ((obj["spec"].get("resources") or {}).get("requests") or {}).get("storage")
        if requested:
            used["requests.storage"] = parse_quantity(requested)
            class_name = obj["spec"].get("storageClassName")
            if class_name:
                prefix = f"{class_name}.storageclass.storage.k8s.io"
                used[f"{prefix}/requests.storage"] = used["requests.storage"]
                used[f"{prefix}/persistentvolumeclaims"] = _ONE
    return used


def _spec(quota: Object) -> Object:
    """Return a quota's hard limits; empty if it has none."""
    return quota.get("spec") or {}


def in_scope(quota: Object, storage: str, obj: Object) -> bool:
    """Return whether a quota's scopes select an object. Scopes apply to pods only."""
    spec = _spec(quota)
    terms: list[Object] = [
        {"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()
    ]
    terms += (spec.get("scopeSelector") or {}).get("matchExpressions") or []
    if not terms:
        return True
    return storage == "pods" and all(_matches_scope(term, obj) for term in terms)


def _matches_scope(term: Object, pod: Object) -> bool:
    spec = pod.get("spec") or {}
    match term.get("scopeName"):
        case "Terminating":
            return spec.get("activeDeadlineSeconds") is not None
        case "NotTerminating":
            return spec.get("activeDeadlineSeconds") is None
        case "BestEffort":
            return (pod.get("status") or {}).get("qosClass") == "BestEffort"
        case "NotBestEffort":
            return (pod.get("status") or {}).get("qosClass") != "BestEffort"
        case "PriorityClass":
            return _operator(term, spec.get("priorityClassName"))
    return False


def _operator(term: Object, value: Any) -> bool:
    values = term.get("values") or ()
    match term.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return bool(value)
        case "DoesNotExist":
            return not value
    return False


def recount(resources: Resources, namespace: str) -> list[RelatedWrite]:
    """Return the quotas of a namespace whose status differs from the actual usage."""
    quotas = list(_quotas(resources, namespace))
    if not quotas:
        return []
    totals: list[Amounts] = [{} for _ in quotas]
    for storage in resources.store.resources():
        served = resources.registry.of_storage(storage)
        if served is None or not served.kind.namespaced:
            continue
        for entry in resources.store.heads(storage, f"{namespace}/"):
            obj = msgspec.json.decode(entry.body)
            usage = usage_of(storage, obj)
            for (_, quota), total in zip(quotas, totals, strict=True):
                if in_scope(quota, storage, obj):
                    add(total, usage)
    changed = []
    for (entry, quota), total in zip(quotas, totals, strict=True):
        hard = _spec(quota).get("hard") or {}
        status = {"hard": hard, "used": {name: str(total.get(name, _ZERO)) for name in hard}}
        if quota.get("status") != status:
            quota["status"] = status
            changed.append(RelatedWrite(QUOTAS, entry, quota))
    return changed

"""Decide the Endpoints and EndpointSlices of a service.

`next_step` is pure: the service and its selected pods in, effects out. Ready pods are addresses;
others are listed as not ready, or as addresses too if the service sets `publishNotReadyAddresses`.
A service without a selector is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hekla.controllers.objects import (
    annotations_of,
    is_deleting,
    key_of,
    labels_of,
    owner_reference,
    status_of,
    uid_of,
)
from hekla.controllers.workloads.effects import Create, Delete, Effect, Patch
from hekla.controllers.workloads.pods import is_finished, is_ready
from hekla.kube.resources import ENDPOINT_SLICES, ENDPOINTS, Resource
from hekla.units.objects import Object
from hekla.units.patches import create_merge_patch
from hekla.units.selectors import LabelSelector

SERVICE_NAME: Final = "kubernetes.io/service-name"
MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
MANAGER: Final = "endpointslice-controller.k8s.io"
HEADLESS: Final = "service.kubernetes.io/headless"
OVER_CAPACITY: Final = "endpoints.kubernetes.io/over-capacity"
MAX_ADDRESSES: Final = 1000
SLICE_SIZE: Final = 100


@dataclass(frozen=True)
class ServiceView:
    """The input of a decision about one service."""

    service: Object
    pods: Sequence[Object] = ()
    endpoints: Object | None = None
    slices: Sequence[Object] = ()


@dataclass(frozen=True)
class Address:
    """A pod of the service."""

    ip: str
    pod: Object
    is_ready: bool
    is_serving: bool
    is_terminating: bool
    ports: tuple[tuple[str, str, int], ...]
    """(name, protocol, number): a named target port may differ between pods."""


def selector_of(service: Object) -> LabelSelector | None:
    """Return the selector of a service; None if its endpoints are not managed."""
    spec = service.get("spec") or {}
    given = spec.get("selector")
    if not given or spec.get("type") == "ExternalName":
        return None
    return LabelSelector.from_labels(given)


def next_step(view: ServiceView) -> list[Effect]:
    """Return the effects that reconcile a service."""
    if selector_of(view.service) is None or is_deleting(view.service):
        return []
    addresses = sorted(_addresses(view), key=lambda each: (each.ports, each.ip))
    return [*_endpoints(view, addresses), *_slices(view, addresses)]


def _addresses(view: ServiceView) -> Iterable[Address]:
    is_always_ready = bool(view.service["spec"].get("publishNotReadyAddresses"))
    for pod in view.pods:
        ip = status_of(pod).get("podIP")
        if not ip or is_finished(pod):
            continue
        serving, terminating = is_ready(pod), is_deleting(pod)
        ready = is_always_ready or (serving and not terminating)
        yield Address(
            ip, pod, ready, serving or is_always_ready, terminating, _ports(view.service, pod)
        )


def _ports(service: Object, pod: Object) -> tuple[tuple[str, str, int], ...]:
    found = []
    for port in service["spec"].get("ports") or ():
        protocol = port.get("protocol") or "TCP"
        target = port.get("targetPort", port.get("port"))
        number = target if isinstance(target, int) else _named_port(pod, str(target), protocol)
        if number is not None:
            found.append((port.get("name") or "", protocol, number))
    return tuple(found)


def _named_port(pod: Object, name: str, protocol: str) -> int | None:
    if name.isdecimal():
        return int(name)
    for container in pod["spec"].get("containers") or ():
        for port in container.get("ports") or ():
            if port.get("name") == name and (port.get("protocol") or "TCP") == protocol:
                return int(port["containerPort"])
    return None


def _target(pod: Object) -> Object:
    namespace, name = key_of(pod)
    return {"kind": "Pod", "namespace": namespace, "name": name, "uid": uid_of(pod)}


def _hostname(service: Object, pod: Object) -> str | None:
    spec = pod["spec"]
    if spec.get("hostname") and spec.get("subdomain") == service["metadata"]["name"]:
        return str(spec["hostname"])
    return None


def _is_headless(service: Object) -> bool:
    return bool(service["spec"].get("clusterIP") == "None")


def _meta(service: Object, name: str, labels: Object) -> Object:
    return {
        "name": name,
        "namespace": service["metadata"]["namespace"],
        "labels": {**labels_of(service), **labels},
        "ownerReferences": [owner_reference("v1", "Service", service)],
    }


# Endpoints


def _endpoints(view: ServiceView, addresses: list[Address]) -> list[Effect]:
    service = view.service
    labels = {HEADLESS: ""} if _is_headless(service) else {}
    metadata = _meta(service, service["metadata"]["name"], labels)
    kept = [each for each in addresses if each.is_ready or not each.is_terminating]
    if len(kept) > MAX_ADDRESSES:
        metadata["annotations"] = {OVER_CAPACITY: "truncated"}
        kept = kept[:MAX_ADDRESSES]
    subsets: list[Object] = []
    for ports in sorted({each.ports for each in kept}):
        subset: Object = {}
        for field, ready in (("addresses", True), ("notReadyAddresses", False)):
            found = [_entry(service, a) for a in kept if a.ports == ports and a.is_ready == ready]
            if found:
                subset[field] = found
        if ports:
            subset["ports"] = [_port(*each) for each in ports]
        subsets.append(subset)
    wanted: Object = {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata}
    if subsets:
        wanted["subsets"] = subsets
    return _create_or_patch(ENDPOINTS, view.endpoints, wanted, ("subsets",))


def _entry(service: Object, address: Address) -> Object:
    entry: Object = {"ip": address.ip, "targetRef": _target(address.pod)}
    if address.pod["spec"].get("nodeName"):
        entry["nodeName"] = address.pod["spec"]["nodeName"]
    if (host := _hostname(service, address.pod)) is not None:
        entry["hostname"] = host
    return entry


def _port(name: str, protocol: str, number: int) -> Object:
    port: Object = {"port": number, "protocol": protocol}
    return {"name": name, **port} if name else port


def _create_or_patch(
    kind: Resource[Any], found: Object | None, wanted: Object, fields: Sequence[str]
) -> list[Effect]:
    """Create an object, or patch the given fields that differ."""
    if found is None:
        return [Create(kind, wanted)]
    patch: Object = {}
    for name in fields:
        if (found.get(name) or []) != (wanted.get(name) or []):
            patch[name] = wanted.get(name)
    labels = wanted["metadata"]["labels"]
    if changes := create_merge_patch(labels_of(found), labels):
        patch.setdefault("metadata", {})["labels"] = changes
    truncated = (wanted["metadata"].get("annotations") or {}).get(OVER_CAPACITY)
    if annotations_of(found).get(OVER_CAPACITY) != truncated:
        patch.setdefault("metadata", {})["annotations"] = {OVER_CAPACITY: truncated}
    return [Patch(kind, found, patch)] if patch else []


# Slices


def _slices(view: ServiceView, addresses: list[Address]) -> list[Effect]:
    """Fill slices of a hundred in order; a name follows from the service and the slice's number."""
    service = view.service
    labels = {SERVICE_NAME: service["metadata"]["name"], MANAGED_BY: MANAGER}
    if _is_headless(service):
        labels[HEADLESS] = ""
    chunks: list[tuple[tuple[tuple[str, str, int], ...], list[Address]]] = []
    for ports in sorted({each.ports for each in addresses}) or [()]:
        same = [each for each in addresses if each.ports == ports]
        for start in range(0, max(len(same), 1), SLICE_SIZE):
            chunks.append((ports, same[start : start + SLICE_SIZE]))
    known = {each["metadata"]["name"]: each for each in view.slices}
    effects: list[Effect] = []
    for number, (ports, members) in enumerate(chunks):
        name = f"{service['metadata']['name'][:54]}-{number:05d}"
        wanted: Object = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": _meta(service, name, labels),
            "addressType": "IPv6" if any(":" in each.ip for each in members) else "IPv4",
            "endpoints": [_endpoint(service, each) for each in members],
            "ports": [{"name": n, "protocol": p, "port": number} for n, p, number in ports],
        }
        effects += _create_or_patch(
            ENDPOINT_SLICES, known.pop(name, None), wanted, ("endpoints", "ports")
        )
    managed = [each for each in known.values() if labels_of(each).get(MANAGED_BY) == MANAGER]
    return [*effects, *(Delete(ENDPOINT_SLICES, each) for each in managed if not is_deleting(each))]


def _endpoint(service: Object, address: Address) -> Object:
    endpoint: Object = {
        "addresses": [address.ip],
        "conditions": {
            "ready": address.is_ready,
            "serving": address.is_serving,
            "terminating": address.is_terminating,
        },
        "targetRef": _target(address.pod),
    }
    if address.pod["spec"].get("nodeName"):
        endpoint["nodeName"] = address.pod["spec"]["nodeName"]
    if (host := _hostname(service, address.pod)) is not None:
        endpoint["hostname"] = host
    return endpoint


def is_same_endpoint(old: Object, new: Object) -> bool:
    """Return whether two states of a pod give the same endpoint."""

    def shown(pod: Object) -> tuple[Any, ...]:
        return (
            status_of(pod).get("podIP"),
            is_ready(pod),
            is_finished(pod),
            is_deleting(pod),
            labels_of(pod),
            pod["spec"].get("nodeName"),
        )

    return shown(old) == shown(new)

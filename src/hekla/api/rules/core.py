"""Rules of the core group except pods: configuration, services, storage, limits, nodes, events."""

from __future__ import annotations

import base64
import binascii
import ipaddress
from typing import Any, Final

from hekla.api import wellknown
from hekla.api.rules import amounts, names
from hekla.api.rules.claims import access_modes, claim_spec
from hekla.api.rules.containers import PROTOCOLS, port_reference
from hekla.api.rules.fields import (
    FieldErrors,
    between,
    duplicate,
    forbidden,
    invalid,
    one_of,
    required,
    too_long,
    unchanged,
)
from hekla.api.rules.placement import EFFECTS, node_selector
from hekla.api.rules.workloads import replicas
from hekla.units.objects import Object
from hekla.units.quantity import Quantity, QuantityError
from hekla.units.selectors import label_key_problem, label_value_problem

MAX_DATA: Final = 1024 * 1024
_FAMILY_POLICIES: Final = ("PreferDualStack", "RequireDualStack", "SingleStack")
SERVICE_TYPES: Final = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
RECLAIM_POLICIES: Final = ("Delete", "Recycle", "Retain")

# --- config maps and secrets ------------------------------------------------------------------


def config_map(obj: Object, old: Object | None) -> FieldErrors:
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    size = 0
    for key, value in data.items():
        yield from names.checked(f"data[{key}]", key, names.config_key)
        if key in binary:
            yield invalid(f"data[{key}]", key, "is in binaryData as well; keep one of them")
        size += len(value.encode())
    for key, value in binary.items():
        yield from names.checked(f"binaryData[{key}]", key, names.config_key)
        size += _decoded_size(value)
    if size > MAX_DATA:
        yield too_long("data", MAX_DATA)
    yield from _immutable(obj, old, "data", "binaryData")


# Required keys of secrets with a known type.
_SECRET_KEYS: Final = {
    wellknown.SECRET_TLS: ("tls.crt", "tls.key"),
    wellknown.SECRET_DOCKER_CONFIG_JSON: (".dockerconfigjson",),
    wellknown.SECRET_DOCKER_CFG: (".dockercfg",),
    wellknown.SECRET_SSH_AUTH: ("ssh-privatekey",),
}


def secret(obj: Object, old: Object | None) -> FieldErrors:
    data = obj.get("data") or {}
    size = 0
    for key, value in data.items():
        yield from names.checked(f"data[{key}]", key, names.config_key)
        decoded = _decoded_size(value)
        if decoded < 0:
            yield invalid(f"data[{key}]", "<hidden>", "must be base64; use stringData for text")
        size += max(decoded, 0)
    if size > MAX_DATA:
        yield too_long("data", MAX_DATA)
    kind = obj.get("type", "")
    for key in _SECRET_KEYS.get(kind, ()):
        if key not in data:
            yield required(f"data[{key}]", f"needed by secrets of type {kind}")
    if kind == wellknown.SECRET_BASIC_AUTH and not {"username", "password"} & data.keys():
        yield required("data[username]", "username or password is needed by this type of secret")
    if kind == wellknown.SECRET_SERVICE_ACCOUNT_TOKEN:
        annotations = (obj.get("metadata") or {}).get("annotations") or {}
        if not annotations.get(wellknown.SERVICE_ACCOUNT_NAME):
            yield required(f"metadata.annotations[{wellknown.SERVICE_ACCOUNT_NAME}]")
    if old is not None:
        yield from unchanged("type", kind, old.get("type", ""))
    yield from _immutable(obj, old, "data")


def _decoded_size(text: Any) -> int:
    try:
        return len(base64.b64decode(text or "", validate=True))
    except (binascii.Error, TypeError, ValueError):
        return -1


def _immutable(obj: Object, old: Object | None, *fields: str) -> FieldErrors:
    if not old or not old.get("immutable"):
        return
    if not obj.get("immutable"):
        yield forbidden("immutable", "field is immutable when `immutable` is set")
    for field in fields:
        if (obj.get(field) or {}) != (old.get(field) or {}):
            yield forbidden(field, "field is immutable when `immutable` is set")


# --- services ---------------------------------------------------------------------------------


def service(obj: Object, old: Object | None) -> FieldErrors:
    spec = obj.get("spec") or {}
    kind, address = spec.get("type"), spec.get("clusterIP") or ""
    yield from one_of("spec.type", kind, SERVICE_TYPES)
    ports = spec.get("ports") or []
    if not ports and kind != "ExternalName" and address != "None":
        yield required("spec.ports", "only headless services and external names have no ports")
    yield from _service_ports(ports)
    if spec.get("selector"):
        yield from names.label_map("spec.selector", spec["selector"])
    if spec.get("sessionAffinity"):
        yield from one_of("spec.sessionAffinity", spec["sessionAffinity"], ("ClientIP", "None"))
    if kind == "ExternalName":
        yield from names.checked(
            "spec.externalName", (spec.get("externalName") or "").rstrip("."), names.dns_subdomain
        )
        if address and address != "None":
            yield forbidden("spec.clusterIPs", "may not be set for ExternalName services")
    else:
        yield from _cluster_ips(spec, address)
    if kind in ("NodePort", "LoadBalancer") and address == "None":
        yield invalid("spec.clusterIPs[0]", address, f"may not be None for {kind} services")
    before = (old or {}).get("spec") or {}
    if before.get("clusterIP") and "ExternalName" not in (kind, before.get("type")):
        yield from unchanged("spec.clusterIPs[0]", address, before["clusterIP"])


def _cluster_ips(spec: Object, address: str) -> FieldErrors:
    all_addresses = spec.get("clusterIPs") or []
    if all_addresses and not address:
        yield invalid("spec.clusterIPs", all_addresses, "needs the first of them in clusterIP")
    elif all_addresses and all_addresses[0] != address:
        yield invalid("spec.clusterIPs", all_addresses, "the first must be the one of clusterIP")
    if len(all_addresses) > 2:
        yield invalid("spec.clusterIPs", all_addresses, "may have one address of each family")
    if address not in ("", "None"):
        yield from _address("spec.clusterIPs[0]", address)
    families = spec.get("ipFamilies") or []
    for index, family in enumerate(families):
        yield from one_of(f"spec.ipFamilies[{index}]", family, ("IPv4", "IPv6"))
        if family in families[:index]:
            yield duplicate(f"spec.ipFamilies[{index}]", family)
    policy = spec.get("ipFamilyPolicy")
    if policy:
        yield from one_of("spec.ipFamilyPolicy", policy, _FAMILY_POLICIES)
    if len(families) > 1 and policy == "SingleStack":
        yield invalid("spec.ipFamilyPolicy", policy, "must allow two families, as ipFamilies does")


def _service_ports(ports: list[Object]) -> FieldErrors:
    yield from names.unique("spec.ports", ports)
    seen: set[tuple[Any, Any]] = set()
    for index, port in enumerate(ports):
        at = f"spec.ports[{index}]"
        if len(ports) > 1 or port.get("name"):
            yield from names.checked(f"{at}.name", port.get("name"), names.dns_label)
        yield from between(f"{at}.port", port.get("port"), 1, 65535)
        yield from one_of(f"{at}.protocol", port.get("protocol", "TCP"), PROTOCOLS)
        if port.get("targetPort") is not None:
            yield from port_reference(f"{at}.targetPort", port["targetPort"])
        if port.get("nodePort"):
            yield from between(f"{at}.nodePort", port["nodePort"], 1, 65535)
        key = (port.get("protocol", "TCP"), port.get("port"))
        if key in seen:
            yield duplicate(at, f"{key[1]}/{key[0]}")
        seen.add(key)


def _address(field: str, text: str) -> FieldErrors:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        yield invalid(field, text, "must be an IPv4 or IPv6 address")


# --- storage ----------------------------------------------------------------------------------


def claim(obj: Object, old: Object | None) -> FieldErrors:
    spec = obj.get("spec") or {}
    yield from claim_spec("spec", spec)
    if old is None:
        return
    before = old.get("spec") or {}
    # The binder sets the volume, and users may request more storage; nothing else may change.
    free = {"resources", "volumeAttributesClassName"}
    if not before.get("volumeName"):
        free.add("volumeName")
    if before.get("storageClassName") is None:
        free.add("storageClassName")
    for field in sorted((spec.keys() | before.keys()) - free):
        if (spec.get(field) or None) != (before.get(field) or None):
            yield forbidden(
                "spec",
                "a claim is immutable after creation, except for resources.requests; "
                f"changed: {field}",
            )
    yield from _no_shrinking(spec, before, (old.get("status") or {}).get("phase"))


def _no_shrinking(spec: Object, before: Object, phase: Any) -> FieldErrors:
    def requested(of: Object) -> Any:
        return ((of.get("resources") or {}).get("requests") or {}).get(wellknown.STORAGE)

    new, old = requested(spec), requested(before)
    if new is None or old is None or new == old:
        return
    field = "spec.resources.requests.storage"
    if phase != "Bound":
        yield forbidden(field, "only bound claims can be resized")
    try:
        if Quantity.parse(new) < Quantity.parse(old):
            yield forbidden(field, "can not be less than the previous value")
    except QuantityError:
        return  # reported already


# All fields of a PersistentVolumeSpec that are not its source.
_VOLUME_FIELDS: Final = {
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
}


def persistent_volume(obj: Object, old: Object | None) -> FieldErrors:
    spec = obj.get("spec") or {}
    if not spec.get("accessModes"):
        yield required("spec.accessModes")
    yield from access_modes("spec", spec)
    if wellknown.STORAGE not in (spec.get("capacity") or {}):
        yield required("spec.capacity", "storage is required")
    yield from amounts.resource_list("spec.capacity", spec.get("capacity"))
    if spec.get("persistentVolumeReclaimPolicy"):
        policy = spec["persistentVolumeReclaimPolicy"]
        yield from one_of("spec.persistentVolumeReclaimPolicy", policy, RECLAIM_POLICIES)
    sources = sorted(k for k, v in spec.items() if k not in _VOLUME_FIELDS and v is not None)
    if not sources:
        yield required("spec", "must specify a volume type")
    for name in sources[1:]:
        yield forbidden(f"spec.{name}", "may not specify more than 1 volume type")
    affinity = (spec.get("nodeAffinity") or {}).get("required")
    if affinity is not None:
        yield from node_selector("spec.nodeAffinity.required", affinity)
    elif "local" in sources:
        yield required("spec.nodeAffinity", "required for a local volume")
    if old is not None:
        before = old.get("spec") or {}
        for name in (*sources, "volumeMode"):
            yield from unchanged(f"spec.{name}", spec.get(name), before.get(name))


# --- quotas and limits ------------------------------------------------------------------------

_SCOPES: Final = (
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
    "VolumeAttributesClass",
)


def resource_quota(obj: Object, old: Object | None) -> FieldErrors:
    spec = obj.get("spec") or {}
    for resource, amount in (spec.get("hard") or {}).items():
        at = f"spec.hard[{resource}]"
        if why := label_key_problem(resource):
            yield invalid(at, resource, why)
        yield from amounts.non_negative(at, amount)
    scopes = spec.get("scopes") or []
    for index, scope in enumerate(scopes):
        yield from one_of(f"spec.scopes[{index}]", scope, _SCOPES)
    for pair in (("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")):
        if set(pair) <= set(scopes):
            yield invalid("spec.scopes", scopes, f"{pair[0]} and {pair[1]} are mutually exclusive")
    if old is not None:
        yield from unchanged("spec.scopes", scopes, (old.get("spec") or {}).get("scopes") or [])


def limit_range(obj: Object, old: Object | None) -> FieldErrors:
    seen: set[str] = set()
    for index, item in enumerate((obj.get("spec") or {}).get("limits") or ()):
        at = f"spec.limits[{index}]"
        kind = item.get("type")
        if not kind:
            yield required(f"{at}.type")
        elif kind in seen:
            yield duplicate(f"{at}.type", kind)
        seen.add(kind or "")
        if kind == "Pod":
            for field in ("default", "defaultRequest"):
                if item.get(field):
                    yield forbidden(f"{at}.{field}", "may not be specified when type is Pod")
        for field in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
            yield from amounts.resource_list(f"{at}.{field}", item.get(field))
        yield from _in_order(at, item)


# (lower, upper, the reported one): defaults are reported before bounds.
_ORDER: Final = (
    ("min", "max", "min"),
    ("min", "defaultRequest", "defaultRequest"),
    ("min", "default", "default"),
    ("defaultRequest", "default", "defaultRequest"),
    ("defaultRequest", "max", "defaultRequest"),
    ("default", "max", "default"),
)


def _in_order(at: str, item: Object) -> FieldErrors:
    for lower, upper, reported in _ORDER:
        for resource, low in (item.get(lower) or {}).items():
            high = (item.get(upper) or {}).get(resource)
            try:
                if high is not None and Quantity.parse(low) > Quantity.parse(high):
                    yield invalid(
                        f"{at}.{reported}[{resource}]",
                        item[reported][resource],
                        f"{lower} value {low} is greater than {upper} value {high}",
                    )
            except QuantityError:
                continue  # reported already


# --- nodes, events, controllers ---------------------------------------------------------------


def node(obj: Object, old: Object | None) -> FieldErrors:
    seen: set[tuple[Any, Any]] = set()
    for index, taint in enumerate((obj.get("spec") or {}).get("taints") or ()):
        at = f"spec.taints[{index}]"
        key, effect = taint.get("key"), taint.get("effect")
        if not key:
            yield required(f"{at}.key")
        elif why := label_key_problem(key):
            yield invalid(f"{at}.key", key, why)
        if taint.get("value") and (why := label_value_problem(taint["value"])):
            yield invalid(f"{at}.value", taint["value"], why)
        yield from one_of(f"{at}.effect", effect, EFFECTS)
        if (key, effect) in seen:
            yield duplicate(at, f"{key}:{effect}")
        seen.add((key, effect))
    status = obj.get("status") or {}
    for field in ("capacity", "allocatable"):
        yield from amounts.resource_list(f"status.{field}", status.get(field))


def event(obj: Object, old: Object | None) -> FieldErrors:
    subject = (obj.get("involvedObject") or {}).get("namespace") or ""
    namespace = (obj.get("metadata") or {}).get("namespace") or ""
    # Events of cluster-scoped objects are in `default`.
    if subject != namespace and not (not subject and namespace == wellknown.DEFAULT_NAMESPACE):
        yield invalid("involvedObject.namespace", subject, "does not match event.namespace")


def replication_controller(obj: Object, old: Object | None) -> FieldErrors:
    spec = obj.get("spec") or {}
    yield from replicas("spec", spec, selector={"matchLabels": spec.get("selector")})


def namespace(obj: Object, old: Object | None) -> FieldErrors:
    for index, finalizer in enumerate((obj.get("spec") or {}).get("finalizers") or ()):
        if why := label_key_problem(finalizer):
            yield invalid(f"spec.finalizers[{index}]", finalizer, why)


def endpoints(obj: Object, old: Object | None) -> FieldErrors:
    for number, subset in enumerate(obj.get("subsets") or ()):
        at = f"subsets[{number}]"
        for section in ("addresses", "notReadyAddresses"):
            for index, address in enumerate(subset.get(section) or ()):
                yield from _address(f"{at}.{section}[{index}].ip", address.get("ip") or "")
        for index, port in enumerate(subset.get("ports") or ()):
            yield from between(f"{at}.ports[{index}].port", port.get("port"), 1, 65535)


def service_account(obj: Object, old: Object | None) -> FieldErrors:
    for field in ("secrets", "imagePullSecrets"):
        for index, ref in enumerate(obj.get(field) or ()):
            if ref.get("name"):
                at = f"{field}[{index}].name"
                yield from names.checked(at, ref["name"], names.dns_subdomain)


TABLE = (
    ("v1", "Namespace", namespace),
    ("v1", "ConfigMap", config_map),
    ("v1", "Secret", secret),
    ("v1", "Service", service),
    ("v1", "Endpoints", endpoints),
    ("v1", "ServiceAccount", service_account),
    ("v1", "PersistentVolumeClaim", claim),
    ("v1", "PersistentVolume", persistent_volume),
    ("v1", "ResourceQuota", resource_quota),
    ("v1", "LimitRange", limit_range),
    ("v1", "Node", node),
    ("v1", "Event", event),
    ("v1", "ReplicationController", replication_controller),
)

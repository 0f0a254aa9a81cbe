"""Columns of the core group (except pods) and of endpoints."""

from __future__ import annotations

from typing import Any

from hekla.apiserver.schema import versions
from hekla.apiserver.tables.age import UNKNOWN, age
from hekla.apiserver.tables.columns import AGE, NAME, SELECTOR, WIDE, Column, Printer, printer, wide
from hekla.apiserver.tables.formats import (
    NONE,
    UNSET,
    age_of,
    condition,
    first_few,
    labels_text,
    name_of,
    part,
    quantity_text,
)
from hekla.units.objects import Object

_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE_LABEL = "kubernetes.io/role"


def _namespace(obj: Object, now: float) -> list[Any]:
    return [name_of(obj), part(obj, "status").get("phase", ""), age_of(obj, now)]


# Nodes


def _node_status(node: Object) -> str:
    ready = condition(part(node, "status").get("conditions"), "Ready")
    text = "Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"
    return text + ",SchedulingDisabled" if part(node, "spec").get("unschedulable") else text


def _node_roles(node: Object) -> str:
    labels = node["metadata"].get("labels") or {}
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    roles.add(labels.get(_ROLE_LABEL, ""))
    return ",".join(sorted(roles - {""})) or NONE


def _node_address(node: Object, kind: str) -> str:
    for address in part(node, "status").get("addresses") or ():
        if address.get("type") == kind:
            return str(address.get("address"))
    return NONE


def _node(node: Object, now: float) -> list[Any]:
    info = part(node, "status", "nodeInfo")
    kernel = info.get("kernelVersion") or UNKNOWN
    if info.get("architecture"):
        kernel += f" ({info['architecture']})"
    return [
        name_of(node),
        _node_status(node),
        _node_roles(node),
        age_of(node, now),
        info.get("kubeletVersion", ""),
        _node_address(node, "InternalIP"),
        _node_address(node, "ExternalIP"),
        info.get("osImage") or UNKNOWN,
        kernel,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


# Services and endpoints


def _external_ip(service: Object) -> str:
    spec = part(service, "spec")
    given = spec.get("externalIPs") or []
    match spec.get("type"):
        case "ClusterIP" | "NodePort":
            return ",".join(given) or NONE
        case "LoadBalancer":
            ingress = part(service, "status", "loadBalancer").get("ingress")
            return ",".join([*balancer_addresses(ingress), *given]) or "<pending>"
        case "ExternalName":
            return str(spec.get("externalName", ""))
    return UNKNOWN


def balancer_addresses(ingress: list[Object] | None) -> list[str]:
    addresses = {point.get("ip") or point.get("hostname") or "" for point in ingress or ()}
    return sorted(addresses - {""})


def _service_port(port: Object) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{node_port}/{port.get('protocol', 'TCP')}"


def _service(service: Object, now: float) -> list[Any]:
    spec = part(service, "spec")
    addresses = spec.get("clusterIPs") or [spec.get("clusterIP") or NONE]
    return [
        name_of(service),
        spec.get("type", ""),
        addresses[0],
        _external_ip(service),
        ",".join(map(_service_port, spec.get("ports") or ())) or NONE,
        age_of(service, now),
        labels_text(spec.get("selector")),
    ]


def _host_port(address: Object, port: Object | None) -> str:
    host = str(address.get("ip", ""))
    if port is None:
        return host
    return f"[{host}]:{port.get('port')}" if ":" in host else f"{host}:{port.get('port')}"


def _endpoints(obj: Object, now: float) -> list[Any]:
    subsets = obj.get("subsets") or []
    points = [
        _host_port(address, port)
        for subset in subsets
        for port in subset.get("ports") or [None]  # a headless service may have no ports
        for address in subset.get("addresses") or ()
    ]
    return [name_of(obj), first_few(points) if subsets else NONE, age_of(obj, now)]


def _endpoint_slice(obj: Object, now: float) -> list[Any]:
    ports = [str(port.get("port") or port.get("name") or "*") for port in obj.get("ports") or ()]
    addresses = [
        address
        for endpoint in obj.get("endpoints") or ()
        for address in endpoint.get("addresses") or ()
    ]
    return [
        name_of(obj),
        obj.get("addressType", ""),
        first_few(ports) or UNSET,
        first_few(addresses) or UNSET,
        age_of(obj, now),
    ]


# Configuration and identity


def _config_map(obj: Object, now: float) -> list[Any]:
    count = len(part(obj, "data")) + len(part(obj, "binaryData"))
    return [name_of(obj), count, age_of(obj, now)]


def _secret(obj: Object, now: float) -> list[Any]:
    return [name_of(obj), obj.get("type", ""), len(part(obj, "data")), age_of(obj, now)]


def _name_and_age(obj: Object, now: float) -> list[Any]:
    return [name_of(obj), age_of(obj, now)]


def _resource_quota(obj: Object, now: float) -> list[Any]:
    hard, used = part(obj, "status", "hard"), part(obj, "status", "used")
    texts: dict[bool, list[str]] = {False: [], True: []}
    for resource in sorted(hard):
        amounts = f"{quantity_text(used.get(resource))}/{quantity_text(hard[resource])}"
        texts[resource.startswith("limits.")].append(f"{resource}: {amounts}")
    return [name_of(obj), ", ".join(texts[False]), ", ".join(texts[True]), age_of(obj, now)]


# Events


def _event_source(event: Object) -> str:
    source = part(event, "source")
    component = source.get("component") or event.get("reportingComponent") or ""
    instance = source.get("host") or event.get("reportingInstance") or ""
    return f"{component}, {instance}" if instance else component


def _event(event: Object, now: float) -> list[Any]:
    if "regarding" in event:
        event = versions.event_to_core(event)
    first = age(event.get("firstTimestamp") or event.get("eventTime"), now)
    last = age(event["lastTimestamp"], now) if event.get("lastTimestamp") else first
    count = event.get("count") or 1
    series = event.get("series")
    if series:
        last, count = age(series.get("lastObservedTime"), now), series.get("count", 0)
    about = part(event, "involvedObject")
    target = about.get("kind", "").lower()
    if about.get("name"):
        target += f"/{about['name']}"
    return [
        last,
        event.get("type", ""),
        event.get("reason", ""),
        target,
        about.get("fieldPath", ""),
        _event_source(event),
        (event.get("message") or "").strip(),
        first,
        count,
        name_of(event),
    ]


EVENTS = printer(
    (
        Column("Last Seen", "Time since it happened last."),
        Column("Type", "Normal or Warning."),
        Column("Reason", "The reason, in one machine-readable word."),
        Column("Object", "The object of the event."),
        wide("Subobject", "Which part of that object, such as a container."),
        wide("Source", "The component and host that reported it."),
        Column("Message", "A human-readable description."),
        wide("First Seen", "Time since it happened first."),
        wide("Count", "How often it has happened."),
        Column("Name", NAME.description, format="name", priority=WIDE),
    ),
    _event,
)

CORE: dict[str, Printer] = {
    "namespaces": printer(
        (NAME, Column("Status", "Active or Terminating."), AGE),
        _namespace,
    ),
    "nodes": printer(
        (
            NAME,
            Column("Status", "Whether the node is ready and schedulable."),
            Column("Roles", "Roles, from its labels."),
            AGE,
            Column("Version", "Version of its agent."),
            wide("Internal-IP", "Its address inside the cluster."),
            wide("External-IP", "Its address outside the cluster."),
            wide("OS-Image", "The operating system it reports."),
            wide("Kernel-Version", "The kernel it reports, and the processor architecture."),
            wide("Container-Runtime", "The container runtime."),
        ),
        _node,
    ),
    "services": printer(
        (
            NAME,
            Column("Type", "The type of the service."),
            Column("Cluster-IP", "Its address inside the cluster."),
            Column("External-IP", "Its address outside the cluster."),
            Column("Port(s)", "Ports it listens on, with node ports after a colon."),
            AGE,
            SELECTOR,
        ),
        _service,
    ),
    "endpoints": printer(
        (NAME, Column("Endpoints", "Addresses behind the service."), AGE), _endpoints
    ),
    "discovery.k8s.io/endpointslices": printer(
        (
            NAME,
            Column("AddressType", "IPv4, IPv6 or FQDN."),
            Column("Ports", "Ports of every endpoint in the slice."),
            Column("Endpoints", "Addresses in the slice."),
            AGE,
        ),
        _endpoint_slice,
    ),
    "configmaps": printer((NAME, Column("Data", "Number of entries."), AGE), _config_map),
    "secrets": printer(
        (
            NAME,
            Column("Type", "The type of the secret."),
            Column("Data", "Number of entries."),
            AGE,
        ),
        _secret,
    ),
    "serviceaccounts": printer((NAME, AGE), _name_and_age),
    "resourcequotas": printer(
        (
            NAME,
            Column("Request", "Used and hard limits of objects and requests."),
            Column("Limit", "Used and hard limits of pod limits."),
            AGE,
        ),
        _resource_quota,
    ),
    "events": EVENTS,
    "events.k8s.io/events": EVENTS,
}

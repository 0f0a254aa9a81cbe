"""Rules of containers: names, images, ports, environment, mounts, probes."""

from __future__ import annotations

import re
from typing import Any, Final

from hekla.api.rules import amounts, names
from hekla.api.rules.fields import (
    FieldErrors,
    at_least,
    between,
    duplicate,
    forbidden,
    invalid,
    not_found,
    one_of,
    required,
)
from hekla.units.objects import Object

PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
MESSAGE_POLICIES: Final = ("FallbackToLogsOnError", "File")
RESTART_POLICIES: Final = ("Always", "Never", "OnFailure")
HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc")
HOOKS: Final = ("exec", "httpGet", "tcpSocket", "sleep")
ENV_SOURCES: Final = (
    "fieldRef",
    "resourceFieldRef",
    "configMapKeyRef",
    "secretKeyRef",
    "fileKeyRef",
)

# Fields of a pod that its environment may refer to.
FIELD_PATHS: Final = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_MAP_ENTRY: Final = re.compile(r"metadata\.(labels|annotations)\['[^']+'\]", re.ASCII)


def containers(path: str, spec: Object, volume_names: frozenset[str]) -> FieldErrors:
    """Check all containers of a pod spec: names are unique across regular and init containers."""
    if not spec.get("containers"):
        yield required(f"{path}.containers", "a pod runs at least one container")
    seen: set[str] = set()
    host_ports: set[tuple[Any, ...]] = set()
    for section in ("containers", "initContainers", "ephemeralContainers"):
        for index, each in enumerate(spec.get(section) or ()):
            where = f"{path}.{section}[{index}]"
            yield from names.checked(f"{where}.name", each.get("name"), names.dns_label)
            if each.get("name") in seen:
                yield duplicate(f"{where}.name", each["name"])
            seen.add(each.get("name", ""))
            yield from _container(where, each, section, volume_names)
            yield from _ports(where, each.get("ports") or (), spec, host_ports)


def _container(where: str, c: Object, section: str, volume_names: frozenset[str]) -> FieldErrors:
    image = c.get("image")
    if not image:
        yield required(f"{where}.image")
    elif image != image.strip():
        yield invalid(f"{where}.image", image, "may not start or end with white space")
    if c.get("imagePullPolicy"):
        yield from one_of(f"{where}.imagePullPolicy", c["imagePullPolicy"], PULL_POLICIES)
    if c.get("terminationMessagePolicy"):
        policy = c["terminationMessagePolicy"]
        yield from one_of(f"{where}.terminationMessagePolicy", policy, MESSAGE_POLICIES)
    if c.get("restartPolicy"):
        yield from one_of(f"{where}.restartPolicy", c["restartPolicy"], RESTART_POLICIES)
    yield from amounts.container_resources(f"{where}.resources", c.get("resources"))
    yield from _environment(where, c)
    yield from _mounts(where, c.get("volumeMounts") or (), volume_names)
    yield from _probes(where, c, section)
    for hook in ("postStart", "preStop"):
        handler = (c.get("lifecycle") or {}).get(hook)
        if handler is not None:
            yield from _handler(f"{where}.lifecycle.{hook}", handler, HOOKS)
    yield from _ids(f"{where}.securityContext", c.get("securityContext") or {})


def _ids(where: str, context: Object) -> FieldErrors:
    for field in ("runAsUser", "runAsGroup", "fsGroup"):
        if context.get(field) is not None:
            yield from between(f"{where}.{field}", context[field], 0, 2**31 - 1)


def _ports(where: str, ports: Any, spec: Object, taken: set[tuple[Any, ...]]) -> FieldErrors:
    seen: set[str] = set()
    for index, port in enumerate(ports):
        at = f"{where}.ports[{index}]"
        number = port.get("containerPort")
        if not number:
            yield required(f"{at}.containerPort")
        else:
            yield from between(f"{at}.containerPort", number, 1, 65535)
        yield from one_of(f"{at}.protocol", port.get("protocol", "TCP"), PROTOCOLS)
        name = port.get("name")
        if name:
            yield from names.checked(f"{at}.name", name, names.port_name)
            if name in seen:
                yield duplicate(f"{at}.name", name)
            seen.add(name)
        host = port.get("hostPort")
        if host:
            yield from between(f"{at}.hostPort", host, 1, 65535)
            if spec.get("hostNetwork") and host != number:
                yield invalid(f"{at}.hostPort", host, "must equal containerPort with hostNetwork")
            key = (port.get("protocol", "TCP"), port.get("hostIP") or "", host)
            if key in taken:
                yield duplicate(f"{at}.hostPort", "{}/{}/{}".format(*key))
            taken.add(key)


def _environment(where: str, c: Object) -> FieldErrors:
    for index, variable in enumerate(c.get("env") or ()):
        at = f"{where}.env[{index}]"
        yield from names.checked(f"{at}.name", variable.get("name"), names.env_name)
        source = variable.get("valueFrom")
        if source is None:
            continue
        if variable.get("value"):
            yield invalid(f"{at}.valueFrom", source, "may not be set together with value")
        yield from _exactly_one(f"{at}.valueFrom", source, ENV_SOURCES)
        if source.get("fieldRef") is not None:
            path = source["fieldRef"].get("fieldPath") or ""
            if not path:
                yield required(f"{at}.valueFrom.fieldRef.fieldPath")
            elif path not in FIELD_PATHS and not _MAP_ENTRY.fullmatch(path):
                yield invalid(
                    f"{at}.valueFrom.fieldRef.fieldPath",
                    path,
                    f"must be one of {', '.join(FIELD_PATHS)}, "
                    "or an entry such as metadata.labels['app']",
                )
        if source.get("resourceFieldRef") and not source["resourceFieldRef"].get("resource"):
            yield required(f"{at}.valueFrom.resourceFieldRef.resource")
        for ref in ("configMapKeyRef", "secretKeyRef"):
            if source.get(ref):
                for field in ("name", "key"):
                    if not source[ref].get(field):
                        yield required(f"{at}.valueFrom.{ref}.{field}")
    for index, source in enumerate(c.get("envFrom") or ()):
        at = f"{where}.envFrom[{index}]"
        yield from _exactly_one(at, source, ("configMapRef", "secretRef"))
        for ref in ("configMapRef", "secretRef"):
            if source.get(ref) is not None and not source[ref].get("name"):
                yield required(f"{at}.{ref}.name")


def _mounts(where: str, mounts: Any, volume_names: frozenset[str]) -> FieldErrors:
    paths: set[str] = set()
    for index, mount in enumerate(mounts):
        at = f"{where}.volumeMounts[{index}]"
        name, path = mount.get("name"), mount.get("mountPath")
        if not name:
            yield required(f"{at}.name")
        elif name not in volume_names:
            yield not_found(f"{at}.name", name)
        if not path:
            yield required(f"{at}.mountPath")
        elif path in paths:
            yield invalid(f"{at}.mountPath", path, "must be unique")
        paths.add(path or "")
        if mount.get("subPath") and mount.get("subPathExpr"):
            yield invalid(
                f"{at}.subPathExpr", mount["subPathExpr"], "may not be set together with subPath"
            )
        for field in ("subPath", "subPathExpr"):
            if mount.get(field):
                yield from relative_path(f"{at}.{field}", mount[field])


def relative_path(field: str, path: str) -> FieldErrors:
    """Check that a path cannot leave the directory it is relative to."""
    if path.startswith("/"):
        yield invalid(field, path, "must be a relative path")
    if ".." in path.split("/"):
        yield invalid(field, path, "must not contain '..'")


def _probes(where: str, c: Object, section: str) -> FieldErrors:
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = c.get(name)
        if probe is None:
            continue
        at = f"{where}.{name}"
        # A sidecar keeps running and may be probed; other init containers terminate.
        if section == "initContainers" and c.get("restartPolicy") != "Always":
            yield forbidden(at, "may not be set for init containers without restartPolicy=Always")
            continue
        yield from _handler(at, probe, HANDLERS)
        for field in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "failureThreshold"):
            if probe.get(field) is not None:
                yield from at_least(f"{at}.{field}", probe[field], 0)
        threshold = probe.get("successThreshold")
        if name != "readinessProbe" and threshold not in (None, 1):
            yield invalid(f"{at}.successThreshold", threshold, "must be 1")
        grace = probe.get("terminationGracePeriodSeconds")
        if grace is not None:
            if name == "readinessProbe":
                yield invalid(
                    f"{at}.terminationGracePeriodSeconds",
                    grace,
                    "must not be set for readiness probes: they stop nothing",
                )
            else:
                yield from at_least(f"{at}.terminationGracePeriodSeconds", grace, 1)


def _handler(at: str, handler: Object, kinds: tuple[str, ...]) -> FieldErrors:
    yield from _exactly_one(at, handler, kinds, what="handler type")
    if handler.get("exec") is not None and not handler["exec"].get("command"):
        yield required(f"{at}.exec.command")
    for kind in ("httpGet", "tcpSocket", "grpc"):
        action = handler.get(kind)
        if action is not None:
            yield from port_reference(f"{at}.{kind}.port", action.get("port"))


def port_reference(field: str, port: Any) -> FieldErrors:
    """Check a port number or name."""
    if isinstance(port, str) and port:
        yield from names.checked(field, port, names.port_name)
    elif port is None or port == "":
        yield required(field)
    else:
        yield from between(field, port, 1, 65535)


def _exactly_one(
    at: str, source: Object, choices: tuple[str, ...], what: str = "source"
) -> FieldErrors:
    given = [name for name in choices if source.get(name) is not None]
    if not given:
        yield required(at, f"must specify a {what}: one of {', '.join(choices)}")
    for name in given[1:]:
        yield forbidden(f"{at}.{name}", f"may not specify more than one {what}")

"""Environment variables and command lines, as Kubernetes expands them. Pure.

`$(NAME)` refers to earlier variables; `$$` is a dollar sign; unknown references stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final

from hekla.units.objects import Object
from hekla.units.quantity import Quantity, parse_quantity

Values = Mapping[str, str]

_REFERENCE: Final = re.compile(r"\$(\$|\(([^()]*)\))")
_SUBSCRIPT: Final = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


INHERITED: Final = ("PATH", "LANG", "TZ", "TERM")
"""Variables of the agent that every container has, beside LC_*. Others may be secrets."""
INHERITED_BY_OWNER: Final = (
    "HOME", "USER", "LOGNAME", "SHELL", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "CONDA_*", "CUDA_*",
)  # fmt: skip
"""Further variables of containers that run as the user of the agent."""


class MissingReference(Exception):
    """A variable or volume refers to an object or key that does not exist (yet)."""


class Sources:
    """The config maps and secrets that a pod refers to, by name; None for missing ones."""

    def __init__(
        self,
        config_maps: Mapping[str, Values | None] | None = None,
        secrets: Mapping[str, Values | None] | None = None,
    ) -> None:
        self._known = {"ConfigMap": config_maps or {}, "Secret": secrets or {}}

    def values(self, kind: str, name: str, *, optional: bool) -> Values:
        found = self._known[kind].get(name)
        if found is None and not optional:
            raise MissingReference(f"{kind} {name!r} does not exist in the pod's namespace")
        return found or {}

    def value(self, kind: str, ref: Object) -> str | None:
        optional = bool(ref.get("optional"))
        values = self.values(kind, ref["name"], optional=optional)
        if ref["key"] not in values:
            if optional:
                return None
            raise MissingReference(f"{kind} {ref['name']!r} has no key {ref['key']!r}")
        return values[ref["key"]]


def inherited(environ: Values, *, is_owner: bool) -> dict[str, str]:
    """Return the variables of the agent that a container gets."""
    patterns = ["LC_*", *INHERITED, *(INHERITED_BY_OWNER if is_owner else ())]
    return {
        name: value
        for name, value in environ.items()
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    }


def expand(text: str, variables: Values) -> str:
    """Expand `$(NAME)` and `$$`."""

    def replace(match: re.Match[str]) -> str:
        if match.group(1) == "$":
            return "$"
        return variables.get(match.group(2), match.group(0))

    return _REFERENCE.sub(replace, text)


def container_environment(
    pod: Object, container: Object, sources: Sources, *, base: Values, node: Object, pod_ip: str
) -> dict[str, str]:
    """Return the variables of a container over `base`, in the order of the spec."""
    variables = dict(base)
    own: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        prefix = source.get("prefix") or ""
        for kind, field in (("ConfigMap", "configMapRef"), ("Secret", "secretRef")):
            ref = source.get(field)
            if ref:
                optional = bool(ref.get("optional"))
                for key, value in sources.values(kind, ref["name"], optional=optional).items():
                    own[prefix + key] = value
    for variable in container.get("env") or ():
        given = _value(pod, container, variable, sources, node=node, pod_ip=pod_ip)
        if given is not None:
            own[variable["name"]] = expand(given, own) if "value" in variable else given
    variables.update(own)
    return variables


def _value(
    pod: Object,
    container: Object,
    variable: Object,
    sources: Sources,
    *,
    node: Object,
    pod_ip: str,
) -> str | None:
    source = variable.get("valueFrom")
    if not source:
        return str(variable.get("value") or "")
    if "fieldRef" in source:
        return field(pod, source["fieldRef"]["fieldPath"], pod_ip=pod_ip)
    if "resourceFieldRef" in source:
        return resource_field(pod, container, source["resourceFieldRef"], node=node)
    if "configMapKeyRef" in source:
        return sources.value("ConfigMap", source["configMapKeyRef"])
    if "secretKeyRef" in source:
        return sources.value("Secret", source["secretKeyRef"])
    raise MissingReference(f"variable {variable['name']!r}: {sorted(source)} is not supported here")


def field(pod: Object, path: str, *, pod_ip: str) -> str:
    """Return a field of the pod by its downward-API path."""
    metadata, spec = pod["metadata"], pod["spec"]
    if subscript := _SUBSCRIPT.fullmatch(path):
        return str((metadata.get(subscript.group(1)) or {}).get(subscript.group(2), ""))
    match path:
        case "metadata.name" | "metadata.namespace" | "metadata.uid":
            return str(metadata.get(path.split(".")[1], ""))
        case "metadata.labels" | "metadata.annotations":
            pairs = sorted((metadata.get(path.split(".")[1]) or {}).items())
            return "\n".join(f'{key}="{value}"' for key, value in pairs)
        case "spec.nodeName" | "spec.serviceAccountName":
            return str(spec.get(path.split(".")[1], ""))
        case "status.podIP" | "status.podIPs":
            return pod_ip
        case "status.hostIP" | "status.hostIPs":
            return str((pod.get("status") or {}).get("hostIP") or "127.0.0.1")
    raise MissingReference(f"field {path!r} cannot be referred to")


def resource_field(pod: Object, container: Object, ref: Object, *, node: Object) -> str:
    """Return a request or limit in units of the divisor, rounded up.

    The node's allocatable if unset.
    """
    name = ref.get("containerName")
    if name:
        every = [*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or ())]
        container = next(c for c in every if c["name"] == name)
    which, _, resource = ref["resource"].partition(".")
    resources = container.get("resources") or {}
    text = (resources.get(which) or {}).get(resource)
    if text is None and which == "limits":
        text = ((node.get("status") or {}).get("allocatable") or {}).get(resource)
    amount = parse_quantity(text if text is not None else 0)
    divisor = parse_quantity(ref.get("divisor") or 0)
    unit = divisor if not divisor.is_zero else Quantity.from_int(1)
    return str(-(-amount.nanos // unit.nanos))


def command_line(container: Object, variables: Values) -> list[str]:
    """Return `command` and `args`, expanded."""
    words: Iterable[str] = [*(container.get("command") or ()), *(container.get("args") or ())]
    return [expand(word, variables) for word in words]

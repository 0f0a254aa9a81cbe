"""Field numbers of Kubernetes' binary wire format, read from the struct tags of its Go modules.

kubectl and every Go client send built-in kinds as protobuf. Numbers, names and types are all the
server needs to read that; the table holds them for the kinds that are served, and nothing else.
The tags are the source because they alone tell a pointer (where zero means zero) from a value
(where zero means unset).

    "apps/v1.DeploymentSpec": [[1, "replicas", "i", "", 1], …]

A field is its number, its name in JSON ("" when its fields stand in the parent), its type (`s`
string, `i` integer, `b` boolean, `d` double, `y` bytes, or a message), its container ("" one, `[`
list, `{` map), and 1 when a zero is to be kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hekla.api import kinds

STAGING = "v0.36.1"
MODULES = (
    "k8s.io/api",
    "k8s.io/apimachinery",
    "k8s.io/apiextensions-apiserver",
    "k8s.io/kube-aggregator",
)

# Messages with a special JSON form; hekla.apiserver.endpoints.protobuf uses these names.
SPECIAL = {
    "resource.Quantity": "quantity",
    "intstr.IntOrString": "int-or-string",
    "meta.k8s.io/v1.Time": "time",
    "meta.k8s.io/v1.MicroTime": "micro-time",
    "meta.k8s.io/v1.Duration": "duration",
    "meta.k8s.io/v1.FieldsV1": "json",
    "runtime.RawExtension": "json",
    "apiextensions.k8s.io/v1.JSON": "json",
    "apiextensions.k8s.io/v1.JSONSchemaPropsOrArray": "schema-or-list",
    "apiextensions.k8s.io/v1.JSONSchemaPropsOrBool": "schema-or-bool",
    "apiextensions.k8s.io/v1.JSONSchemaPropsOrStringArray": "schema-or-names",
}
_SCALARS = {
    "string": "s",
    "bool": "b",
    "float64": "d",
    **dict.fromkeys(("int", "int32", "int64", "uint16", "uint32", "uint64", "byte", "uint8"), "i"),
}
_STRUCT = re.compile(r"^type (\w+) struct ?\{(?:\}|\n(.*?)^\})", re.MULTILINE | re.DOTALL)
_ALIAS = re.compile(r"^(?:type |\t)(\w+) ((?:\[\]|map\[\w+\]|\*)*[\w.]+)$", re.MULTILINE)
_FIELD = re.compile(r"^\t(?:(\w+)\s+)?((?:\[\]|map\[[\w.]+\]|\*)*[\w.]+)\s+`([^`]*)`", re.MULTILINE)
_IMPORT = re.compile(r'^\t(?:(\w+) )?"(k8s\.io/[^"]+)"', re.MULTILINE)
_GROUP = re.compile(r'GroupName\s*=\s*"([^"]*)"')
# What packages outside a group are called in the table, by the end of their path.
_NAMED = ("util/intstr", "api/resource", "pkg/runtime", "pkg/types")


@dataclass
class Package:
    """One Go package: its messages and the other names its fields use."""

    name: str
    structs: dict[str, str]
    aliases: dict[str, str]
    imports: dict[str, str]


def _package(path: Path, where: str) -> Package:
    text = "\n".join(
        file.read_text()
        for file in sorted(path.glob("*.go"))
        if not file.name.startswith(("zz_", "generated")) and not file.name.endswith("_test.go")
    )
    group = _GROUP.search(text)
    if group is not None and not where.endswith(_NAMED):
        name = f"{group[1]}/{path.name}".lstrip("/")
    else:
        name = path.name
    imports = {alias or path.rsplit("/", 1)[-1]: path for alias, path in _IMPORT.findall(text)}
    return Package(name, dict(_STRUCT.findall(text)), dict(_ALIAS.findall(text)), imports)


class Sources:
    """Packages by import path, read when first asked for."""

    def __init__(self, modules: dict[str, Path]) -> None:
        self._modules = modules
        self._packages: dict[str, Package] = {}

    def package(self, where: str) -> Package:
        if where not in self._packages:
            module = next(name for name in self._modules if where.startswith(f"{name}/"))
            path = self._modules[module] / where.removeprefix(f"{module}/")
            self._packages[where] = _package(path, where)
        return self._packages[where]


class Table:
    """The messages that some roots reach."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self.messages: dict[str, list[list[Any]]] = {}

    def add(self, where: str, name: str) -> str:
        """Enter a message and all it refers to; its name in the table."""
        package = self._sources.package(where)
        full = f"{package.name}.{name}"
        if full in SPECIAL:
            if SPECIAL[full].startswith("schema"):
                self.add(where, "JSONSchemaProps")
            return SPECIAL[full]
        if full not in self.messages:
            self.messages[full] = []
            self.messages[full] = sorted(self._fields(where, package.structs[name]))
        return full

    def _fields(self, where: str, body: str) -> Iterator[list[Any]]:
        for _, go_type, tags in _FIELD.findall(body):
            found = dict(re.findall(r'(\w+):"([^"]*)"', tags))
            if "protobuf" not in found:
                continue
            number = int(found["protobuf"].split(",")[1])
            name, *options = found.get("json", "").split(",")
            inline = "inline" in options
            pointer = go_type.startswith("*")
            keep = pointer or not {"omitempty", "omitzero"} & set(options)
            kind, container = self._type(where, go_type.lstrip("*"))
            yield [number, "" if inline else name, kind, container, int(keep)]

    def _type(self, where: str, go_type: str) -> tuple[str, str]:
        """A Go type as (type, container) of the table."""
        if go_type == "[]byte":
            return "y", ""
        if go_type.startswith("[]"):
            return self._type(where, go_type[2:].lstrip("*"))[0], "["
        if match := re.match(r"map\[[\w.]+\](.*)", go_type):
            return self._type(where, match[1])[0], "{"
        if go_type in _SCALARS:
            return _SCALARS[go_type], ""
        if "." in go_type:
            alias, go_type = go_type.split(".")
            where = self._sources.package(where).imports[alias]
        package = self._sources.package(where)
        if go_type in package.structs:
            return self.add(where, go_type), ""
        meaning = package.aliases[go_type]
        if meaning == "[]string":
            return "strings", ""  # a message of its own on the wire, a plain list in JSON
        return self._type(where, meaning)


# Groups whose types do not live with the others.
_HOMES = {
    "apiextensions": "k8s.io/apiextensions-apiserver/pkg/apis",
    "apiregistration": "k8s.io/kube-aggregator/pkg/apis",
}


def _roots() -> Iterator[tuple[str, str]]:
    """Import path and type of everything a client may send."""
    for kind in kinds.BUILTIN:
        short = (kind.group or "core").removesuffix(".k8s.io").removesuffix(".authorization")
        short = short.removesuffix(".apiserver")
        home = _HOMES.get(short, "k8s.io/api")
        where = f"{home}/{short}/{kind.version}"
        yield where, kind.kind
    yield "k8s.io/api/authentication/v1", "TokenRequest"
    yield "k8s.io/api/autoscaling/v1", "Scale"
    yield "k8s.io/api/core/v1", "Binding"
    yield "k8s.io/api/policy/v1", "Eviction"
    yield "k8s.io/apimachinery/pkg/apis/meta/v1", "DeleteOptions"


def messages(modules: dict[str, Path]) -> dict[str, list[list[Any]]]:
    """The table, from the folders of `MODULES`."""
    table = Table(Sources(modules))
    for where, name in _roots():
        table.add(where, name)
    return dict(sorted(table.messages.items()))

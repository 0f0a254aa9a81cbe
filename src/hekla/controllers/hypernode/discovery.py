"""Decide which HyperNodes follow from node labels, and how many nodes each has. Pure.

The configuration names labels from the widest part of the network to the closest:

    networkTopologyDiscovery:
    - source: label
      enabled: true
      config:
        networkTopologyTypes:
          pods:
          - nodeLabel: example.com/spine
          - nodeLabel: example.com/rack
          - nodeLabel: kubernetes.io/hostname

Every value of a label becomes a HyperNode: tier 1 for the closest label, one tier more for each
wider one. A host name label at the end stands for the node itself. A node without a label belongs
only to the tiers below it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hekla.api.wellknown import LABEL_HOSTNAME, NETWORK_TOPOLOGY_SOURCE
from hekla.controllers.objects import labels_of, uid_of
from hekla.units import bounded_yaml
from hekla.units.errors import SelectorError
from hekla.units.objects import Object
from hekla.units.patterns import PatternError, compile_pattern
from hekla.units.selectors import LabelSelector

SOURCE: Final = "label"
MAX_TYPE: Final = 20
MAX_CONFIG_BYTES: Final = 1 << 20


class ConfigError(Exception):
    """The discovery configuration is invalid; the message names the field."""


@dataclass(frozen=True, slots=True)
class CreateHyperNode:
    """Create a HyperNode."""

    body: Object


@dataclass(frozen=True, slots=True)
class PatchHyperNode:
    """Merge-patch a HyperNode."""

    name: str
    patch: Object


@dataclass(frozen=True, slots=True)
class DeleteHyperNode:
    """Delete a HyperNode, by UID."""

    name: str
    uid: str


Effect = CreateHyperNode | PatchHyperNode | DeleteHyperNode
TopologyTypes = dict[str, tuple[str, ...]]
"""The labels of each network type, the closest first."""


def parse_config(text: str) -> tuple[TopologyTypes | None, list[str]]:
    """Return the types of the label source (None if it is off) and the unsupported sources."""
    if len(text) > MAX_CONFIG_BYTES:
        raise ConfigError("the configuration is larger than 1 MiB")
    try:
        stated = bounded_yaml.load(text, bounded_yaml.CONFIG) or {}
    except bounded_yaml.YAMLError as error:
        raise ConfigError(f"invalid YAML: {error}") from None
    sources = stated.get("networkTopologyDiscovery") if isinstance(stated, dict) else None
    if sources is None:
        return None, []
    if not isinstance(sources, list) or not all(isinstance(each, dict) for each in sources):
        raise ConfigError("networkTopologyDiscovery must be a list of sources")
    types: TopologyTypes | None = None
    unknown = []
    for source in sources:
        if not source.get("enabled"):
            continue
        if source.get("source") == SOURCE:
            types = _types((source.get("config") or {}).get("networkTopologyTypes"))
        else:
            unknown.append(str(source.get("source")))
    return types, unknown


def _types(stated: Any) -> TopologyTypes:
    where = "config.networkTopologyTypes"
    if not isinstance(stated, dict) or not stated:
        raise ConfigError(f"{where} must name at least one type with its labels")
    found: TopologyTypes = {}
    for name, entries in stated.items():
        if not isinstance(name, str) or not 0 < len(name) <= MAX_TYPE:
            raise ConfigError(f"{where}: {name!r} must be text of at most {MAX_TYPE} characters")
        if not isinstance(entries, list) or not entries:
            raise ConfigError(f"{where}.{name} must be a list of nodeLabel entries")
        labels = [each.get("nodeLabel") if isinstance(each, dict) else None for each in entries]
        if not all(isinstance(label, str) and label for label in labels):
            raise ConfigError(f"{where}.{name}: every entry needs a nodeLabel")
        if len(set(labels)) < len(labels):
            raise ConfigError(f"{where}.{name}: duplicate nodeLabel")
        if labels[-1] == LABEL_HOSTNAME:
            labels.pop()
        found[name] = tuple(str(label) for label in reversed(labels))
    return found


def discover(
    types: TopologyTypes, nodes: Iterable[Object], existing: Iterable[Object]
) -> list[Effect]:
    """Return the effects that make the HyperNodes of this source match the labels.

    Volcano rewrites every object at each poll; here only differences are written.
    """
    managed = {
        each["metadata"]["name"]: each
        for each in existing
        if labels_of(each).get(NETWORK_TOPOLOGY_SOURCE) == SOURCE
    }
    wanted = _wanted(types, list(nodes), managed)
    effects: list[Effect] = []
    for name, body in sorted(wanted.items(), key=lambda item: (item[1]["spec"]["tier"], item[0])):
        known = managed.get(name)
        if known is None:
            effects.append(CreateHyperNode(body))
            continue
        patch: Object = {}
        if known.get("spec") != body["spec"]:
            patch["spec"] = body["spec"]
        labels = body["metadata"]["labels"]
        if any(labels_of(known).get(key) != value for key, value in labels.items()):
            patch["metadata"] = {"labels": labels}
        if patch:
            effects.append(PatchHyperNode(name, patch))
    for name in sorted(managed.keys() - wanted.keys()):
        effects.append(DeleteHyperNode(name, uid_of(managed[name])))
    return effects


def _wanted(
    types: TopologyTypes, nodes: list[Object], managed: Mapping[str, Object]
) -> dict[str, Object]:
    wanted: dict[str, Object] = {}
    for kind, keys in types.items():
        members: dict[tuple[int, str], set[str]] = {}
        names: dict[tuple[int, str], str] = {}
        for node in nodes:
            inner = str(node["metadata"]["name"])
            for tier, key in enumerate(keys, start=1):
                value = labels_of(node).get(key)
                if not value:
                    break
                tier_and_value = (tier, value)
                if tier_and_value not in names:
                    names[tier_and_value] = _name(kind, tier, key, value, managed, names.values())
                members.setdefault(tier_and_value, set()).add(inner)
                inner = names[tier_and_value]
        for (tier, value), inside in members.items():
            name = names[tier, value]
            wanted[name] = _body(name, tier, keys[tier - 1], value, inside)
    return wanted


def _body(name: str, tier: int, key: str, value: str, inside: Iterable[str]) -> Object:
    kind = "Node" if tier == 1 else "HyperNode"
    return {
        "metadata": {"name": name, "labels": {NETWORK_TOPOLOGY_SOURCE: SOURCE, key: value}},
        "spec": {
            "tier": tier,
            "tierName": key,
            "members": [
                {"type": kind, "selector": {"exactMatch": {"name": member}}}
                for member in sorted(inside)
            ],
        },
    }


def _name(
    kind: str,
    tier: int,
    key: str,
    value: str,
    managed: Mapping[str, Object],
    taken: Iterable[str],
) -> str:
    """Return the name of the HyperNode of a label value.

    Volcano's last five characters are random; here they are derived from the value, so that a
    restarted controller does not create a second object.
    """
    clean = re.sub(r"[^a-z0-9.-]", "", kind.lower()).strip(".-") or "network"
    prefix = f"hypernode-{clean}-tier{tier}-"
    for name in sorted(managed):
        if name.startswith(prefix) and labels_of(managed[name]).get(key) == value:
            return name
    used = {*managed, *taken}
    for salt in range(1000):
        digest = hashlib.sha256(f"{kind}/{key}={value}/{salt or ''}".encode()).hexdigest()
        if (name := prefix + digest[:5]) not in used:
            return name
    raise ConfigError(f"no free name is left for label {key}={value}")


def node_counts(hypernodes: Iterable[Object], nodes: Iterable[Object]) -> dict[str, int]:
    """Return the number of nodes of each HyperNode, those of its members included.

    Volcano counts a member HyperNode as one node, and a name whether or not the node exists.
    """
    labels = {str(node["metadata"]["name"]): labels_of(node) for node in nodes}
    stated = {str(each["metadata"]["name"]): each for each in hypernodes}
    known: dict[str, frozenset[str]] = {}

    def nodes_of(name: str, above: frozenset[str]) -> frozenset[str]:
        if name in known:
            return known[name]
        found: set[str] = set()
        for member in (stated[name].get("spec") or {}).get("members") or ():
            selector = member.get("selector") or {}
            if member.get("type") == "HyperNode":
                inner = (selector.get("exactMatch") or {}).get("name")
                if inner in stated and inner not in above:
                    found |= nodes_of(inner, above | {inner})
            else:
                found |= _matching(selector, labels)
        known[name] = frozenset(found)
        return known[name]

    return {name: len(nodes_of(name, frozenset({name}))) for name in stated}


def _matching(selector: Object, labels: Mapping[str, Mapping[str, str]]) -> set[str]:
    if exact := selector.get("exactMatch"):
        return {exact["name"]} & labels.keys()
    if pattern := selector.get("regexMatch"):
        try:
            compiled = compile_pattern(pattern["pattern"])
        except PatternError:
            return set()
        return {name for name in labels if compiled.found_in(name)}
    chosen = selector.get("labelMatch") or {}
    if not (chosen.get("matchLabels") or chosen.get("matchExpressions")):
        return set()
    try:
        wanted = LabelSelector.from_dict(chosen)
    except SelectorError:
        return set()
    return {name for name, each in labels.items() if wanted.matches(each)}

"""Make a cluster smaller while it still differs: fewer jobs, queues, nodes, pods and words."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import yaml

from tests.fidelity.catalogue import Case

Json = dict[str, Any]
ATTEMPTS = 250
_WORDS = (
    "priority", "memory", "requests", "spec", "labels", "annotations", "minResources", "group",
    "queue", "weight", "deserved", "guarantee", "capability", "parent", "reclaimable", "taints",
    "extra", "pods",
)  # fmt: skip


def shrink(case: Case, still_differs: Callable[[Case], bool], attempts: int = ATTEMPTS) -> Case:
    """Return a small cluster for which the condition holds, as it does for the given one."""
    is_smaller = True
    while is_smaller and attempts > 0:
        is_smaller = False
        for smaller in _smaller(case):
            attempts -= 1
            if attempts <= 0:
                break
            if still_differs(smaller):
                case, is_smaller = smaller, True
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    yield from _without_objects(case)
    yield from _smaller_conf(case)
    yield from _without_words(case)
    yield from _smaller_amounts(case)


def _without_objects(case: Case) -> Iterator[Case]:
    for kind in ("groups", "queues", "nodes", "pods", "budgets", "hypernodes", "priorities"):
        held = case.body.get(kind, {})
        for name in list(held):
            if len(held) == 1 and kind in ("groups", "nodes"):
                continue
            body = copy.deepcopy(case.body)
            del body[kind][name]
            if not body[kind]:
                del body[kind]
            _forget(body, kind, name)
            yield replace(case, body=body)


def _forget(body: Json, kind: str, name: str) -> None:
    """Remove references to an object."""
    for group in body["groups"].values():
        if kind == "queues" and group.get("queue") == name:
            del group["queue"]
        if kind == "priorities" and group.get("priority") == name:
            del group["priority"]
        for role in (group, *group.get("roles", {}).values()):
            if kind == "nodes":
                role.get("running", {}).pop(name, None)
                if role.get("running") == {}:
                    del role["running"]
    if kind == "queues":
        for spec in body.get("queues", {}).values():
            if spec.get("parent") == name:
                del spec["parent"]
    if kind == "nodes":
        for pod in [key for key, said in body.get("pods", {}).items() if said["node"] == name]:
            del body["pods"][pod]
        for part in body.get("hypernodes", {}).values():
            if name in part.get("nodes", ()):
                part["nodes"].remove(name)
    if kind == "hypernodes":
        for part in body.get("hypernodes", {}).values():
            if name in part.get("children", ()):
                part["children"].remove(name)


def _smaller_conf(case: Case) -> Iterator[Case]:
    stated = yaml.safe_load(case.conf)
    actions = [action.strip() for action in stated["actions"].split(",")]
    for number in range(len(actions)):
        if actions[number] != "allocate":  # a configuration without it is nobody's
            fewer = actions[:number] + actions[number + 1 :]
            yield _conf(case, {**stated, "actions": ", ".join(fewer)})
    for tier, said in enumerate(stated["tiers"]):
        for number, plugin in enumerate(said["plugins"]):
            if plugin["name"] == "predicates":  # filters are part of every configuration
                continue
            less = copy.deepcopy(stated)
            del less["tiers"][tier]["plugins"][number]
            less["tiers"] = [one for one in less["tiers"] if one["plugins"]]
            if less["tiers"]:
                yield _conf(case, less)
            for word in [key for key in plugin if key != "name"]:
                less = copy.deepcopy(stated)
                del less["tiers"][tier]["plugins"][number][word]
                yield _conf(case, less)


def _conf(case: Case, stated: Json) -> Case:
    return replace(case, conf=yaml.safe_dump(stated, sort_keys=False))


def _without_words(case: Case) -> Iterator[Case]:
    for kind in ("groups", "queues", "nodes"):
        for name, said in case.body.get(kind, {}).items():
            for word in [word for word in _WORDS if word in said]:
                if kind == "groups" and word == "pods":
                    continue
                body = copy.deepcopy(case.body)
                del body[kind][name][word]
                yield replace(case, body=body)
            if "roles" in said:
                body = copy.deepcopy(case.body)
                _merge_roles(body[kind][name])
                yield replace(case, body=body)


def _merge_roles(group: Json) -> None:
    roles = group.pop("roles").values()
    group["pods"] = sum(role["pods"] for role in roles)
    for role in roles:
        for node, count in role.get("running", {}).items():
            group.setdefault("running", {})
            group["running"][node] = group["running"].get(node, 0) + count


def _smaller_amounts(case: Case) -> Iterator[Case]:
    for name, said in case.body["groups"].items():
        if said.get("pods", 0) > 1:
            body = copy.deepcopy(case.body)
            _drop_pod(body["groups"][name])
            yield replace(case, body=body)
        for word in ("cpu", "min"):
            if said.get(word, 0) > 1:
                body = copy.deepcopy(case.body)
                body["groups"][name][word] -= 1
                yield replace(case, body=body)
        for node in said.get("running", {}):
            body = copy.deepcopy(case.body)
            _take(body["groups"][name]["running"], node)
            if not body["groups"][name]["running"]:
                del body["groups"][name]["running"]
            yield replace(case, body=body)
    for name, said in case.body["nodes"].items():
        if said["cpu"] > 1:
            body = copy.deepcopy(case.body)
            body["nodes"][name]["cpu"] -= 1
            if _fits(body):
                yield replace(case, body=body)
    for name, said in case.body.get("queues", {}).items():
        if said.get("weight", 1) > 1:
            body = copy.deepcopy(case.body)
            body["queues"][name]["weight"] -= 1
            yield replace(case, body=body)


def _drop_pod(group: Json) -> None:
    group["pods"] -= 1
    group["min"] = min(group["min"], group["pods"])
    if sum(group.get("running", {}).values()) > group["pods"]:
        _take(group["running"], next(iter(group["running"])))
    if "minResources" in group and "cpu" in group:
        group["minResources"] = {"cpu": group["cpu"] * group["min"]}


def _take(places: Json, node: str) -> None:
    places[node] -= 1
    if not places[node]:
        del places[node]


def _fits(body: Json) -> bool:
    """Return whether the running pods fit the nodes."""
    for name, node in body["nodes"].items():
        used = sum(
            role.get("running", {}).get(name, 0) * group.get("cpu", 0)
            for group in body["groups"].values()
            for role in (group, *group.get("roles", {}).values())
        )
        used += sum(pod["cpu"] for pod in body.get("pods", {}).values() if pod["node"] == name)
        if used > node["cpu"]:
            return False
    return True

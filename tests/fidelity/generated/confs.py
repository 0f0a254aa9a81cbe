"""Scheduler configurations of generated clusters: those that are shipped, and random tiers."""

from __future__ import annotations

from random import Random
from typing import Any, Final

import yaml

from hekla.scheduler.framework import config

Json = dict[str, Any]

_BUILT_IN: Final = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins:
  - {name: overcommit}
  - {name: drf}
  - {name: predicates}
  - {name: proportion}
  - {name: nodeorder}
"""
_BINPACK: Final = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins:
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
    arguments:
      binpack.weight: 10
      binpack.cpu: 1
      binpack.memory: 1
      binpack.resources: nvidia.com/gpu
      binpack.resources.nvidia.com/gpu: 2
"""
_CI: Final = """\
actions: "enqueue, allocate, backfill, reclaim, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}, {name: sla}]
- plugins:
  - {name: overcommit}
  - {name: drf}
  - {name: predicates}
  - {name: proportion}
  - {name: nodeorder}
  - {name: binpack}
"""
SHIPPED: Final = {
    "chart": config.DEFAULT,
    "built-in": _BUILT_IN,
    "binpack": _BINPACK,
    "ci": _CI,
}
_ACTIONS: Final = (
    "enqueue, allocate, backfill",
    "enqueue, allocate, preempt, backfill",
    "enqueue, allocate, reclaim, backfill",
    "enqueue, allocate, preempt, reclaim, backfill",
    "enqueue, reclaim, allocate, backfill, preempt",
    "enqueue, allocate, backfill, reclaim, preempt",
    "allocate, preempt, reclaim",
)


def draw(dice: Random, features: set[str]) -> str:
    """Return the text of a configuration that has the plugins that the features need."""
    if dice.random() < 0.4:
        stated: Json = yaml.safe_load(dice.choice(list(SHIPPED.values())))
        if dice.random() < 0.5:
            stated["actions"] = dice.choice(_ACTIONS)
        if "deserved" in features:
            _swap(stated, "proportion", "capacity")
    else:
        stated = {"actions": dice.choice(_ACTIONS), "tiers": _tiers(dice, features)}
    if "tree" in features:
        for plugin in _plugins(stated):
            if plugin["name"] == "capacity":
                plugin["enableHierarchy"] = True
    if "budgets" in features:
        stated["tiers"][0]["plugins"].append({"name": "pdb"})
    if "topology" in features:
        stated["tiers"][-1]["plugins"].append({"name": "network-topology-aware"})
    return yaml.safe_dump(stated, sort_keys=False)


def _tiers(dice: Random, features: set[str]) -> list[Json]:
    share = "capacity" if "deserved" in features else "proportion"
    first: list[Json] = [{"name": "priority"}, {"name": "gang"}, {"name": "conformance"}]
    second: list[Json] = [{"name": "predicates"}, {"name": share}]
    for name in ("overcommit", "drf", "nodeorder", "binpack"):
        if dice.random() < 0.5:
            second.append({"name": name})
    for plugin in (*first, *second):
        for switch in ("enablePreemptable", "enableReclaimable"):
            if plugin["name"] in ("gang", "drf", "priority") and dice.random() < 0.25:
                plugin[switch] = False
    if dice.random() < 0.15:
        dice.shuffle(first)
    if dice.random() < 0.15:
        dice.shuffle(second)
    if dice.random() < 0.1:
        first.pop(dice.randrange(len(first)))
    if dice.random() < 0.15:
        return [{"plugins": first + second}]
    return [{"plugins": first}, {"plugins": second}]


def _plugins(stated: Json) -> list[Json]:
    return [plugin for tier in stated["tiers"] for plugin in tier["plugins"]]


def _swap(stated: Json, old: str, new: str) -> None:
    for plugin in _plugins(stated):
        if plugin["name"] == old:
            plugin["name"] = new

"""Random small clusters, in the words of the catalogue. A seed always gives the same one.

Each cluster has a few features, drawn first, so that most clusters are simple and each feature
meets each other one.

Note: a change here changes every recorded outcome: `python -m tests.fidelity.generated --record`.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any, Final

import yaml

from tests.fidelity.catalogue import Case
from tests.fidelity.generated import confs

Json = dict[str, Any]

ODDS: Final = {
    "queues": 0.75,
    "weights": 0.5,
    "deserved": 0.4,
    "guarantee": 0.15,
    "capability": 0.25,
    "tree": 0.15,
    "queue-priority": 0.1,
    "unreclaimable": 0.15,
    "priorities": 0.6,
    "shapes": 0.5,
    "memory": 0.35,
    "gpus": 0.25,
    "zones": 0.25,
    "taints": 0.2,
    "affinity": 0.15,
    "ports": 0.1,
    "roles": 0.15,
    "best-effort": 0.08,
    "budgets": 0.1,
    "foreign": 0.1,
    "unpreemptable": 0.1,
    "topology": 0.06,
    "lost-member": 0.1,
}
"""How often a cluster has each feature."""
GPU: Final = "nvidia.com/gpu"
_PRIORITIES: Final = {"low": 1, "mid": 5, "high": 9}


def draw(seed: int) -> Case:
    """Return the cluster of a seed."""
    dice = Random(f"cluster {seed}")
    features = {name for name, odds in ODDS.items() if dice.random() < odds}
    if "tree" in features:
        features |= {"queues", "deserved"}
    body: Json = {"nodes": _nodes(dice, features)}
    if "queues" in features:
        body["queues"] = _queues(dice, features, body["nodes"])
    if "priorities" in features:
        body["priorities"] = dict(_PRIORITIES)
    if "topology" in features:
        body["hypernodes"] = _hypernodes(dice, body["nodes"])
    _place(dice, features, body)
    return Case("generated", str(seed), confs.draw(dice, features), body)


def contended(seed: int) -> Case:
    """Return the cluster of a seed with more to evict.

    Running jobs have a low priority and may lose all pods but one, and every action that evicts is
    configured.
    """
    case = draw(seed)
    body: Json = {**copy.deepcopy(case.body), "priorities": dict(_PRIORITIES)}
    for group in body["groups"].values():
        roles = list(group.get("roles", {}).values())
        if not any("running" in role for role in (group, *roles)):
            group.setdefault("priority", "high")
            continue
        group.update(min=1, priority="low")
        for words in (group, *roles):
            words.pop("annotations", None)
            words.pop("minResources", None)
        for role in roles:
            role.pop("min", None)
    stated = yaml.safe_load(case.conf)
    stated["actions"] = "enqueue, allocate, preempt, reclaim, backfill"
    return replace(case, conf=yaml.safe_dump(stated, sort_keys=False), body=body)


def digest(case: Case) -> str:
    """Return a short digest, which tells whether a recorded outcome is of this very cluster."""
    text = json.dumps([case.conf, case.body], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _nodes(dice: Random, features: set[str]) -> Json:
    count = dice.choice((1, 1, 2, 2, 3, 3, 4, 5))
    cpu, made = dice.choice((2, 3, 4, 6, 8)), {}
    for number in range(1, count + 1):
        node: Json = {"cpu": dice.choice((1, 2, 3, 4, 8)) if "shapes" in features else cpu}
        if "memory" in features:
            node["memory"] = f"{dice.choice((2, 4, 8))}Gi"
        if "gpus" in features and dice.random() < 0.7:
            node["extra"] = {GPU: dice.choice((1, 2, 4))}
        if "zones" in features:
            node["labels"] = {"zone": dice.choice("ab")}
        if "taints" in features and dice.random() < 0.4:
            node["taints"] = [dice.choice(("spot=true:NoSchedule", "spot=true:PreferNoSchedule"))]
        if dice.random() < 0.05:
            node["pods"] = dice.choice((2, 3))
        made[f"n{number}"] = node
    return made


def _queues(dice: Random, features: set[str], nodes: Json) -> Json:
    total = sum(node["cpu"] for node in nodes.values())
    names = [f"q{number}" for number in range(1, dice.choice((1, 2, 2, 2, 3, 4)) + 1)]
    made: Json = {}
    parents: list[str] = []
    if "tree" in features:
        parents = ["p1", "p2"][: dice.choice((1, 2))]
        for parent in parents:
            made[parent] = {"deserved": {"cpu": total}} if dice.random() < 0.5 else {}
    for name in names:
        spec: Json = {}
        if "weights" in features:
            spec["weight"] = dice.randint(1, 4)
        if "deserved" in features and dice.random() < 0.8:
            spec["deserved"] = {"cpu": dice.randint(0, max(1, total // len(names)))}
            if "gpus" in features and dice.random() < 0.5:
                spec["deserved"][GPU] = dice.randint(0, 3)
        if "guarantee" in features and dice.random() < 0.5:
            spec["guarantee"] = {"resource": {"cpu": dice.randint(1, max(1, total // 4))}}
        if "capability" in features and dice.random() < 0.5:
            least = (spec.get("deserved") or {}).get("cpu", 0)
            least = max(least, spec.get("guarantee", {}).get("resource", {}).get("cpu", 0), 1)
            spec["capability"] = {"cpu": dice.randint(least, max(least, total))}
        if "queue-priority" in features:
            spec["priority"] = dice.randint(0, 2)
        if "unreclaimable" in features and dice.random() < 0.4:
            spec["reclaimable"] = False
        if parents and dice.random() < 0.8:
            spec["parent"] = dice.choice(parents)
        made[name] = spec
    return made


def _hypernodes(dice: Random, nodes: Json) -> Json:
    names = list(nodes)
    half = (len(names) + 1) // 2
    racks = {"r1": names[:half], "r2": names[half:]}
    made: Json = {rack: {"tier": 1, "nodes": held} for rack, held in racks.items() if held}
    return {**made, "room": {"tier": 2, "children": list(made)}}


# --- jobs -----------------------------------------------------------------------------------------


def _place(dice: Random, features: set[str], body: Json) -> None:
    """Draw the jobs: the older ones run already, where there is room for them."""
    idle = {name: _idle(node) for name, node in body["nodes"].items()}
    if "foreign" in features:
        body["pods"] = _foreign(dice, idle)
    count = dice.choice((1, 2, 2, 3, 3, 4, 5, 6))
    running = dice.randint(0, count - 1)
    labels = [f"j{number}" for number in range(count)]
    body["groups"] = {}
    for number, name in enumerate(labels):
        group = _group(dice, features, body, name)
        if number < running:
            _run(dice, features, group, body["nodes"], idle)
        body["groups"][name] = group
    if "budgets" in features:
        chosen = dice.choice(labels)
        body["budgets"] = {"keep": {"matches": {"app": chosen}, "allowed": dice.randint(0, 2)}}


def _idle(node: Json) -> Counter[str]:
    memory = int(str(node.get("memory", "16Gi")).removesuffix("Gi"))
    gpus = node.get("extra", {}).get(GPU, 0)
    return Counter(cpu=node["cpu"], memory=memory, gpu=gpus, pods=node.get("pods", 110))


def _foreign(dice: Random, idle: dict[str, Counter[str]]) -> Json:
    made: Json = {}
    for number in range(dice.randint(1, 2)):
        node = dice.choice(list(idle))
        if idle[node]["cpu"] >= 1 and idle[node]["pods"] >= 1:
            made[f"f{number}"] = {"node": node, "cpu": 1}
            idle[node].subtract({"cpu": 1, "pods": 1})
    return made


def _group(dice: Random, features: set[str], body: Json, name: str) -> Json:
    pods = dice.choice((1, 1, 2, 2, 3, 3, 4, 5, 8))
    group: Json = {"pods": pods, "cpu": dice.choice((1, 1, 1, 2, 2, 3))}
    group["min"] = pods if dice.random() < 0.5 else dice.randint(1, pods)
    leaves = [queue for queue in body.get("queues", {}) if not queue.startswith("p")]
    if leaves and dice.random() < 0.95:
        group["queue"] = dice.choice(leaves)
    if "priorities" in features and dice.random() < 0.8:
        group["priority"] = dice.choice(list(_PRIORITIES))
    if "memory" in features:
        group["memory"] = f"{dice.choice((1, 2, 4))}Gi"
    if "gpus" in features and dice.random() < 0.5:
        group["requests"] = {GPU: dice.choice((1, 1, 2))}
    if "best-effort" in features and dice.random() < 0.4:
        group = {key: group[key] for key in group if key not in ("cpu", "memory", "requests")}
    spec = _spec(dice, features, body)
    if spec:
        group["spec"] = spec
    if features & {"budgets", "affinity"}:
        group["labels"] = {"app": name}
    if "unpreemptable" in features and dice.random() < 0.4:
        group["annotations"] = {"volcano.sh/preemptable": dice.choice(("false", "true"))}
    if "topology" in features and dice.random() < 0.6:
        mode, tier = dice.choice(("hard", "hard", "soft")), dice.choice((1, 2))
        group["group"] = {"networkTopology": {"mode": mode, "highestTierAllowed": tier}}
    if dice.random() < 0.6 and "cpu" in group:
        group["minResources"] = {"cpu": group["cpu"] * group["min"]}
    if "roles" in features and pods > 1 and dice.random() < 0.5:
        _split(dice, group)
    return group


def _spec(dice: Random, features: set[str], body: Json) -> Json:
    spec: Json = {}
    if "zones" in features and dice.random() < 0.4:
        spec["nodeSelector"] = {"zone": dice.choice("ab")}
    if "taints" in features and dice.random() < 0.5:
        spec["tolerations"] = [{"key": "spot", "operator": "Exists"}]
    if "ports" in features and dice.random() < 0.5:
        spec["container"] = {"ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]}
    if "affinity" in features and dice.random() < 0.6:
        others = [*body["groups"], f"j{len(body['groups'])}"]
        term = {
            "labelSelector": {"matchLabels": {"app": dice.choice(others)}},
            "topologyKey": "kubernetes.io/hostname",
        }
        kind = dice.choice(("podAffinity", "podAntiAffinity", "podAntiAffinity"))
        if dice.random() < 0.7:
            rule: Json = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        else:
            weighted = {"weight": 50, "podAffinityTerm": term}
            rule = {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}
        spec["affinity"] = {kind: rule}
    return spec


def _split(dice: Random, group: Json) -> None:
    """Split the pods into two roles of one shape; sometimes with a minimum each."""
    pods = group.pop("pods")
    first = dice.randint(1, pods - 1)
    group["roles"] = {"a": {"pods": first}, "b": {"pods": pods - first}}
    if dice.random() < 0.5 and group["min"] == pods:
        for role in group["roles"].values():
            role["min"] = role["pods"]


def _run(
    dice: Random, features: set[str], group: Json, nodes: Json, idle: dict[str, Counter[str]]
) -> None:
    """Let pods of a job run where they fit: all, or its minimum, or with one of it lost."""
    roles = list(group["roles"].values()) if "roles" in group else [group]
    need = Counter(
        cpu=group.get("cpu", 0),
        memory=int(str(group.get("memory", "0Gi")).removesuffix("Gi")),
        gpu=group.get("requests", {}).get(GPU, 0),
        pods=1,
    )
    places: list[tuple[Json, str]] = []
    left = {name: Counter(amounts) for name, amounts in idle.items()}
    order = list(nodes)
    if dice.random() < 0.5:
        dice.shuffle(order)
    for role in roles:
        for _ in range(role["pods"]):
            for name in order:
                if all(left[name][key] >= amount for key, amount in need.items()):
                    left[name].subtract(need)
                    places.append((role, name))
                    break
    if len(places) < group["min"]:
        return
    if "lost-member" in features and dice.random() < 0.5:
        places.pop(dice.randrange(len(places)))
    for role, name in places:
        role.setdefault("running", {})
        role["running"][name] = role["running"].get(name, 0) + 1
        idle[name].subtract(need)

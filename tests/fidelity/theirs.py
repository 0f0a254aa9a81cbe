"""Run a case through the real Volcano in one process, cycle by cycle until nothing changes.

The counterpart of `ours.py`: the same objects, and its effects are applied in the same way.
Recording on a real server (`record.py`) takes seconds per case, this takes milliseconds.

Note: what comes from other programs is not there: NUMA layouts, measured load and extenders.
"""

from __future__ import annotations

from tools.peers.oracle import Oracle

from tests.fidelity import ours, outcome
from tests.fidelity.catalogue import NAMESPACE, Case, Json
from tests.fidelity.ours import MAX_CYCLES, QUIET_CYCLES

TIES = "first"
"""Among equally good nodes the first by name, as hekla chooses."""


class TheirCluster:
    """The objects of a case, and what Volcano makes of them."""

    def __init__(self, case: Case) -> None:
        self.conf = case.conf
        self.objects = ours.stored(case)
        self.objects["namespaces"] = [{"metadata": {"name": NAMESPACE}}]

    @property
    def pods(self) -> dict[str, Json]:
        return {pod["metadata"]["name"]: pod for pod in self.objects["pods"]}

    def run(self, oracle: Oracle, ties: str = TIES) -> Json:
        """Decide one cycle; the objects stay as they are."""
        answer = oracle.decide({"conf": self.conf, "ties": ties, **self.objects})
        for key in ("binds", "pipelined", "nominated", "groups"):
            answer[key] = {_name(pod): value for pod, value in answer[key].items()}
        answer["evictions"] = [_name(pod) for pod in answer["evictions"]]
        return answer

    def live(self, answer: Json, *, remake: bool = True) -> None:
        """Apply a cycle: bound pods run, evicted pods are deleted and created again.

        Without `remake`, evicted pods are not created again.
        """
        evicted = set(answer["evictions"])
        lived = []
        for pod in self.objects["pods"]:
            name = pod["metadata"]["name"]
            if name not in evicted:
                lived.append(_after(pod, answer))
            elif remake:
                lived.append(_remade(pod))
        self.objects["pods"] = lived
        for group in self.objects["podGroups"]:
            group["status"] = answer["groups"][group["metadata"]["name"]]


def _after(pod: Json, answer: Json) -> Json:
    name = pod["metadata"]["name"]
    if name in answer["binds"]:
        return {
            **pod,
            "spec": {**pod["spec"], "nodeName": answer["binds"][name]},
            "status": {**pod["status"], "phase": "Running", "nominatedNodeName": ""},
        }
    if name in answer["nominated"]:
        status = {**pod["status"], "nominatedNodeName": answer["nominated"][name]}
        return {**pod, "status": status}
    return pod


def _remade(pod: Json) -> Json:
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    status = {"phase": "Pending", "qosClass": pod["status"]["qosClass"]}
    meta = {**pod["metadata"], "uid": pod["metadata"]["uid"] + "+"}
    return {**pod, "metadata": meta, "spec": spec, "status": status}


def _name(key: str) -> str:
    return key.partition("/")[2]


def decide(case: Case, oracle: Oracle) -> Json:
    """Return the outcome in the form of a recorded one."""
    world = TheirCluster(case)
    before = _pods(world)
    quiet = 0
    for _ in range(MAX_CYCLES):
        answer = world.run(oracle)
        was = _state(world)
        world.live(answer, remake=False)
        quiet = quiet + 1 if _state(world) == was else 0
        if quiet == QUIET_CYCLES:
            return outcome.summary(before, _pods(world), _phases(world))
    raise AssertionError(f"{case} does not come to rest in {MAX_CYCLES} cycles")


def _pods(world: TheirCluster) -> list[outcome.PodSeen]:
    return [outcome.seen(pod) for pod in world.objects["pods"]]


def _phases(world: TheirCluster) -> dict[str, str]:
    return {
        group["metadata"]["name"]: (group.get("status") or {}).get("phase", "")
        for group in world.objects["podGroups"]
    }


def _state(world: TheirCluster) -> object:
    return sorted((p.name, p.node) for p in _pods(world)), _phases(world)

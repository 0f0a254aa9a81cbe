"""Eight simulated nodes in racks and spines, as in docs/guides/topology.md."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hekla.api.wellknown import JOB_ALLOCATED_HYPERNODE
from hekla.kube.resources import HYPER_NODES, NODES, PODGROUPS, PODS, Resource
from hekla.kube.sync_client import SyncClient
from tests.e2e import stories

EXAMPLES = Path(__file__).parents[2] / "examples" / "topology"
Objects = dict[str, dict[str, Any]]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[SyncClient]:
    with stories.cluster(tmp_path, "--no-agent", "--simulated-nodes", "8") as client:
        yield client


def submit(client: SyncClient, file: str) -> None:
    stories.submit(client, EXAMPLES / file)


def until(client: SyncClient, resource: Resource[Any], holds: Callable[[Objects], Any]) -> Any:
    """Watch all objects of a kind, by name, until the condition holds; return its result."""
    found: Objects = {}
    with client.watch(resource, timeout_s=600) as events:
        for event in events:
            name = event.object["metadata"]["name"]
            found.pop(name, None)
            if event.type != "DELETED":
                found[name] = event.object
            if answer := holds(found):
                return answer
    raise AssertionError(f"the condition never held; objects: {sorted(found)}")


def racks_of(job: str, count: int) -> Callable[[Objects], dict[str, str] | None]:
    """Return a condition: so many pods of a job are bound; its result is the rack of each."""

    def placed(pods: Objects) -> dict[str, str] | None:
        nodes = {
            name: pod["spec"]["nodeName"]
            for name, pod in pods.items()
            if name.startswith(f"{job}-") and pod["spec"].get("nodeName")
        }
        if len(nodes) < count:
            return None
        return {name: "abcd"[int(node.removeprefix("sim-")) // 2] for name, node in nodes.items()}

    return placed


def place_of(job: str) -> Callable[[Objects], str]:
    """Return a condition: the PodGroup of a job names its HyperNode."""

    def said(groups: Objects) -> str:
        mine = (group["metadata"] for name, group in groups.items() if name.startswith(job))
        notes = (meta.get("annotations") or {} for meta in mine)
        places = (str(each.get(JOB_ALLOCATED_HYPERNODE, "")) for each in notes)
        return next(filter(None, places), "")

    return said


def test_gangs_stay_in_racks_and_spines(client: SyncClient) -> None:
    until(client, NODES, lambda nodes: len(nodes) == 8)
    for i in range(8):
        labels = {"example.com/rack": "abcd"[i // 2], "example.com/spine": "xy"[i // 4]}
        client.patch(NODES, f"sim-{i:05}", {"metadata": {"labels": labels}})
    submit(client, "scheduler.yaml")
    submit(client, "discovery.yaml")

    def is_counted(parts: Objects) -> bool:
        counts = [(part.get("status") or {}).get("nodeCount") for part in parts.values()]
        return sorted(counts, key=str) == [2, 2, 2, 2, 4, 4]

    until(client, HYPER_NODES, is_counted)
    submit(client, "in-a-rack.yaml")
    one = until(client, PODS, racks_of("in-a-rack", 2))
    assert len(set(one.values())) == 1
    rack = until(client, PODGROUPS, place_of("in-a-rack"))
    labels = client.get(HYPER_NODES, rack)["metadata"]["labels"]
    assert labels["example.com/rack"] in one.values()
    submit(client, "too-large.yaml")
    want = "4 HyperNodes of tier 1 or lower were tried"

    def says(groups: Objects) -> bool:
        for name, group in groups.items():
            for condition in (group.get("status") or {}).get("conditions") or []:
                if name.startswith("too-large") and want in condition["message"]:
                    return True
        return False

    until(client, PODGROUPS, says)
    submit(client, "partitions.yaml")
    parts = until(client, PODS, racks_of("partitions", 4))
    first, second = ({parts[f"partitions-worker-{i}"] for i in pair} for pair in ((0, 1), (2, 3)))
    assert len(first) == len(second) == 1
    assert {*first, *second} in ({"a", "b"}, {"c", "d"})
    assert set(one.values()).isdisjoint({*first, *second})

"""The Numatopology from sysfs."""

from pathlib import Path

from hekla.api.meta import convert
from hekla.api.nodeinfo import Numatopology
from hekla.nodeagent.cpu_manager import CpuManager
from hekla.nodeagent.topology import cpu_locations, numa_topology


def tree(root: Path, numas: dict[int, str], cpus: int) -> Path:
    for number, text in numas.items():
        (root / "node" / f"node{number}").mkdir(parents=True)
        (root / "node" / f"node{number}" / "cpulist").write_text(text + "\n")
    for cpu in range(cpus):
        where = root / "cpu" / f"cpu{cpu}" / "topology"
        where.mkdir(parents=True)
        (where / "physical_package_id").write_text(f"{cpu % 2}\n")
        (where / "core_id").write_text(f"{cpu // 2}\n")
    return root


def test_numatopology_has_numa_node_socket_and_core_of_each_cpu(tmp_path: Path) -> None:
    locations = cpu_locations(tree(tmp_path, {0: "0-1,4", 1: "2-3,5"}, 6))
    made = numa_topology("n", CpuManager(frozenset({0, 1, 2, 5}), locations), {})
    found = convert(made, Numatopology)
    assert found.name == "n"
    assert found.spec.numares["cpu"].allocatable == "0-2,5"
    assert found.spec.numares["cpu"].capacity == 6
    assert {cpu: info.numa for cpu, info in found.spec.cpu_detail.items()} == {
        "0": 0, "1": 0, "4": 0, "2": 1, "3": 1, "5": 1,
    }  # fmt: skip
    detail = found.spec.cpu_detail["5"]
    assert (detail.socket, detail.core) == (1, 2)
    assert found.spec.policies["CPUManagerPolicy"] == "none"


def test_unknown_topology_gives_no_numatopology(tmp_path: Path) -> None:
    assert cpu_locations(tmp_path) == {}
    assert cpu_locations(tree(tmp_path, {0: "0-x"}, 1)) == {}
    assert numa_topology("n", CpuManager(frozenset({0}), {}), {}) is None


def test_numatopology_lists_exclusive_cpus_of_existing_pods(tmp_path: Path) -> None:
    locations = cpu_locations(tree(tmp_path, {0: "0-1", 1: "2-3"}, 4))
    cpus = CpuManager(frozenset(range(4)), locations, "static", "single-numa-node")
    cpus.assignments = {"u1": {"main": {2, 3}}, "gone": {"main": {0}}}
    pod = {"metadata": {"uid": "u1", "name": "p", "namespace": "default"}}
    found = convert(numa_topology("n", cpus, {"u1": pod}), Numatopology)
    assert found.spec.policies["TopologyManagerPolicy"] == "single-numa-node"
    (detail,) = found.spec.pod_allocations
    assert (detail.uid, detail.name) == ("u1", "p")
    assert detail.container_allocations[0].allocations == {"cpu": "2-3"}

"""What sysfs says about CPUs becomes a Numatopology."""

from pathlib import Path

from hekla.api.meta import convert
from hekla.api.nodeinfo import Numatopology
from hekla.nodeagent.cpus import Cpus
from hekla.nodeagent.topology import cpu_places, numa_topology


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


def test_cpus_are_told_with_their_numa_node_socket_and_core(tmp_path: Path) -> None:
    places = cpu_places(tree(tmp_path, {0: "0-1,4", 1: "2-3,5"}, 6))
    made = numa_topology("n", Cpus(frozenset({0, 1, 2, 5}), places), {})
    found = convert(made, Numatopology)
    assert found.name == "n"
    assert found.spec.numares["cpu"].allocatable == "0-2,5"
    assert found.spec.numares["cpu"].capacity == 6
    assert {cpu: info.numa for cpu, info in found.spec.cpu_detail.items()} == {
        "0": 0, "1": 0, "4": 0, "2": 1, "3": 1, "5": 1,
    }  # fmt: skip
    told = found.spec.cpu_detail["5"]
    assert (told.socket, told.core) == (1, 2)
    assert found.spec.policies["CPUManagerPolicy"] == "none"


def test_a_machine_that_does_not_tell_has_no_numatopology(tmp_path: Path) -> None:
    assert cpu_places(tmp_path) == {}
    assert cpu_places(tree(tmp_path, {0: "0-x"}, 1)) == {}
    assert numa_topology("n", Cpus(frozenset({0}), {}), {}) is None


def test_who_has_cpus_of_its_own_is_told_as_long_as_it_is_here(tmp_path: Path) -> None:
    places = cpu_places(tree(tmp_path, {0: "0-1", 1: "2-3"}, 4))
    cpus = Cpus(frozenset(range(4)), places, "static", "single-numa-node")
    cpus.taken = {"u1": {"main": {2, 3}}, "gone": {"main": {0}}}
    pod = {"metadata": {"uid": "u1", "name": "p", "namespace": "default"}}
    found = convert(numa_topology("n", cpus, {"u1": pod}), Numatopology)
    assert found.spec.policies["TopologyManagerPolicy"] == "single-numa-node"
    (told,) = found.spec.pod_allocations
    assert (told.uid, told.name) == ("u1", "p")
    assert told.container_allocations[0].allocations == {"cpu": "2-3"}

"""The NUMA topology of this machine, from sysfs, as the Numatopology that the scheduler reads.

Note: the policies are those in effect. Without `--cpu-manager-policy static` the node assigns no
exclusive CPUs and reports so, and pods that require a policy are not scheduled here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hekla.nodeagent.cpu_manager import CpuLocation, CpuManager
from hekla.units.cpusets import format_cpuset, parse_cpuset
from hekla.units.objects import Object

SYSFS = Path("/sys/devices/system")


def cpu_locations(root: Path = SYSFS) -> dict[int, CpuLocation]:
    """Return the location of every CPU; empty if sysfs does not have all."""
    locations: dict[int, CpuLocation] = {}
    for directory in sorted((root / "node").glob("node[0-9]*")):
        try:
            for cpu in parse_cpuset((directory / "cpulist").read_text()):
                where = root / "cpu" / f"cpu{cpu}" / "topology"
                locations[cpu] = CpuLocation(
                    numa=int(directory.name.removeprefix("node")),
                    socket=max(int((where / "physical_package_id").read_text()), 0),
                    core=int((where / "core_id").read_text()),
                )
        except (OSError, ValueError):
            return {}
    return locations


def numa_topology(name: str, cpus: CpuManager, pods: Mapping[str, Object]) -> Object | None:
    """Return the topology with the assigned CPUs; None if the topology is unknown."""
    if not cpus.locations:
        return None
    usable = {cpu for cpu in cpus.usable if cpu in cpus.locations}
    return {
        "apiVersion": "nodeinfo.volcano.sh/v1alpha1",
        "kind": "Numatopology",
        "metadata": {"name": name},
        "spec": {
            "policies": {
                "CPUManagerPolicy": cpus.policy,
                "TopologyManagerPolicy": cpus.topology_policy,
            },
            "numares": {
                "cpu": {"allocatable": format_cpuset(usable), "capacity": len(cpus.locations)}
            },
            "cpuDetail": {
                str(cpu): {"numa": place.numa, "socket": place.socket, "core": place.core}
                for cpu, place in sorted(cpus.locations.items())
            },
            "podAllocations": [
                _allocation(pods[uid], own) for uid, own in cpus.assignments.items() if uid in pods
            ],
        },
    }


def _allocation(pod: Object, own: Mapping[str, set[int]]) -> Object:
    metadata = pod["metadata"]
    return {
        "uid": metadata["uid"],
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "containerAllocations": [
            {"name": name, "allocations": {"cpu": format_cpuset(cpus)}}
            for name, cpus in own.items()
        ],
    }

"""The NUMA layout of this machine, from sysfs, as the Numatopology that schedulers read.

What a newcomer gets wrong: the policies say what the node does, not what it could. Without
`--cpu-manager-policy static` it gives nobody CPUs of its own, says so, and pods that demand a
policy are not sent here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hekla.nodeagent.cpus import Cpus, Place
from hekla.units.cpusets import format_cpuset, parse_cpuset
from hekla.units.objects import Object

SYSFS = Path("/sys/devices/system")


def cpu_places(root: Path = SYSFS) -> dict[int, Place]:
    """Where every CPU is; nothing where sysfs does not tell it of all."""
    places: dict[int, Place] = {}
    for directory in sorted((root / "node").glob("node[0-9]*")):
        try:
            for cpu in parse_cpuset((directory / "cpulist").read_text()):
                where = root / "cpu" / f"cpu{cpu}" / "topology"
                places[cpu] = Place(
                    numa=int(directory.name.removeprefix("node")),
                    socket=max(int((where / "physical_package_id").read_text()), 0),
                    core=int((where / "core_id").read_text()),
                )
        except (OSError, ValueError):
            return {}
    return places


def numa_topology(name: str, cpus: Cpus, pods: Mapping[str, Object]) -> Object | None:
    """The layout, and who has which CPUs; None where the machine does not tell its layout."""
    if not cpus.places:
        return None
    usable = {cpu for cpu in cpus.usable if cpu in cpus.places}
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
                "cpu": {"allocatable": format_cpuset(usable), "capacity": len(cpus.places)}
            },
            "cpuDetail": {
                str(cpu): {"numa": place.numa, "socket": place.socket, "core": place.core}
                for cpu, place in sorted(cpus.places.items())
            },
            "podAllocations": [
                _allocation(pods[uid], own) for uid, own in cpus.taken.items() if uid in pods
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

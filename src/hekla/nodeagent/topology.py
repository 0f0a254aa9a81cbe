"""The NUMA layout of this machine, from sysfs, as the Numatopology that schedulers read.

What a newcomer gets wrong: the policies say what the node does, not what it could. This agent pins
no CPUs, so it says `none`, and pods that demand a policy are not sent here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hekla.units.cpusets import format_cpuset, parse_cpuset

Object = dict[str, Any]
SYSFS = Path("/sys/devices/system")


def numa_topology(name: str, usable: set[int], root: Path = SYSFS) -> Object | None:
    """The layout, with the CPUs that may be used here; None where sysfs does not tell it."""
    details: dict[str, Object] = {}
    for directory in sorted((root / "node").glob("node[0-9]*")):
        try:
            cpus = parse_cpuset((directory / "cpulist").read_text())
            for cpu in sorted(cpus):
                where = root / "cpu" / f"cpu{cpu}" / "topology"
                details[str(cpu)] = {
                    "numa": int(directory.name.removeprefix("node")),
                    "socket": max(int((where / "physical_package_id").read_text()), 0),
                    "core": int((where / "core_id").read_text()),
                }
        except (OSError, ValueError):
            return None
    if not details:
        return None
    free = {cpu for cpu in usable if str(cpu) in details}
    return {
        "apiVersion": "nodeinfo.volcano.sh/v1alpha1",
        "kind": "Numatopology",
        "metadata": {"name": name},
        "spec": {
            "policies": {"CPUManagerPolicy": "none", "TopologyManagerPolicy": "none"},
            "numares": {"cpu": {"allocatable": format_cpuset(free), "capacity": len(details)}},
            "cpuDetail": details,
        },
    }

"""Exclusive CPUs for pods, as kubelet's static CPU manager policy.

A container of a Guaranteed pod that requests whole CPUs gets them exclusively, from the NUMA nodes
that the scheduler decided on, or from as few as possible; all other containers share the rest. The
assignments are checkpointed in the pods' directories before they are used.

Note: if all CPUs are exclusive, the other containers share all of them; otherwise they could not
run.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hekla.api.numa import NONE, RESTRICTED, SINGLE, STATIC, Taken, fewest, read_decision
from hekla.api.wellknown import TOPOLOGY_DECISION
from hekla.nodeagent.errors import AllocationError
from hekla.units.cpusets import format_cpuset, parse_cpuset
from hekla.units.objects import Object
from hekla.units.quantity import parse_quantity

CPU_CHECKPOINT = "cpus"
"""In a pod's directory: the exclusive CPUs of each container."""


@dataclass(frozen=True, order=True, slots=True)
class CpuLocation:
    """The location of a CPU; threads of one core have equal locations."""

    numa: int
    socket: int
    core: int


@dataclass
class CpuManager:
    """Assigns exclusive CPUs of this machine to containers."""

    usable: frozenset[int]
    locations: Mapping[int, CpuLocation]
    """By CPU; empty if the topology is unknown."""
    policy: str = NONE
    topology_policy: str = NONE
    assignments: dict[str, dict[str, set[int]]] = field(default_factory=dict)
    """By pod UID and container name."""

    def free(self) -> frozenset[int]:
        """Return the CPUs that are not exclusive."""
        held = {cpu for own in self.assignments.values() for cpus in own.values() for cpu in cpus}
        return self.usable - held

    def shared_pool(self) -> set[int]:
        """Return the CPUs of containers without exclusive ones."""
        return set(self.free() or self.usable)

    def requested(self, pod: Object, container: Object) -> int:
        """Return the number of exclusive CPUs of a container; 0 if it shares."""
        if self.policy != STATIC or (pod.get("status") or {}).get("qosClass") != "Guaranteed":
            return 0
        if all(each["name"] != container["name"] for each in pod["spec"]["containers"]):
            return 0  # an init container
        requests = (container.get("resources") or {}).get("requests") or {}
        milli = parse_quantity(requests.get("cpu", 0)).milli_value()
        return max(milli // 1000, 0) if milli % 1000 == 0 else 0

    def allocate(self, pod: Object, container: Object) -> set[int]:
        """Assign exclusive CPUs to a container, or return those it has; none if it shares."""
        count = self.requested(pod, container)
        if not count:
            return set()
        uid, name = pod["metadata"]["uid"], container["name"]
        known = self.assignments.get(uid, {})
        if name not in known:
            annotations = pod["metadata"].get("annotations") or {}
            preferred = read_decision(annotations.get(TOPOLOGY_DECISION))
            for cpu in (cpu for own in known.values() for cpu in own):
                numa = self._numa(cpu)
                preferred[numa] = preferred.get(numa, 0) - 1
            found = self._choose(count, preferred)
            known = self.assignments.setdefault(uid, {})
            known[name] = found
        return known[name]

    def release(self, uid: str) -> bool:
        """Release the CPUs of a pod; return whether it had any."""
        return self.assignments.pop(uid, None) is not None

    # Choice of CPUs

    def _numa(self, cpu: int) -> int:
        return self.locations[cpu].numa if cpu in self.locations else 0

    def _choose(self, count: int, preferred: Taken) -> set[int]:
        free = self._by_numa(self.free())
        left = sum(map(len, free.values()))
        if left < count:
            raise AllocationError(f"needs {count} exclusive CPUs, and {left} are free")
        chosen: list[int] = []
        for numa, most in self._numa_order(free, count, preferred):
            part = free[numa][: min(most, count - len(chosen))]
            del free[numa][: len(part)]
            chosen += part
        self._check_topology_policy(chosen, count)
        return set(chosen)

    def _by_numa(self, cpus: Iterable[int]) -> dict[int, list[int]]:
        """Group CPUs by NUMA node, threads of a core adjacent, so that cores are assigned whole."""
        out: dict[int, list[int]] = {}
        for cpu in sorted(
            cpus, key=lambda cpu: (self.locations.get(cpu, CpuLocation(0, 0, 0)), cpu)
        ):
            out.setdefault(self._numa(cpu), []).append(cpu)
        return out

    def _numa_order(
        self, free: Mapping[int, list[int]], count: int, preferred: Taken
    ) -> list[tuple[int, int]]:
        """Return NUMA nodes in order of use, with the number of CPUs to take at most."""
        order = [(n, cpus) for n, cpus in sorted(preferred.items()) if cpus > 0 and n in free]
        enough = [numa for numa in free if len(free[numa]) >= count]
        if enough:  # the fullest that fits
            order.append((min(enough, key=lambda numa: (len(free[numa]), numa)), count))
        by_free = sorted(free, key=lambda numa: (-len(free[numa]), numa))
        return order + [(numa, count) for numa in by_free]

    def _check_topology_policy(self, chosen: Iterable[int], count: int) -> None:
        used = len({self._numa(cpu) for cpu in chosen})
        if self.topology_policy == SINGLE and used > 1:
            raise AllocationError(f"needs {count} CPUs of one NUMA node, and none has so many free")
        if self.topology_policy == RESTRICTED and used > self._min_numa_nodes(count):
            raise AllocationError(
                f"needs {count} CPUs on as few NUMA nodes as possible, and they are scattered"
            )

    def _min_numa_nodes(self, count: int) -> int:
        """Return how many NUMA nodes a number of CPUs needs on an empty machine."""
        sizes = sorted((len(cpus) for cpus in self._by_numa(self.usable).values()), reverse=True)
        return fewest(sizes, count) or len(sizes)

    # Checkpoints

    def checkpoint(self, uid: str, directory: Path) -> None:
        """Write the assignments of a pod into its directory."""
        own = {name: format_cpuset(cpus) for name, cpus in self.assignments.get(uid, {}).items()}
        if own:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            (directory / CPU_CHECKPOINT).write_text(json.dumps(own))

    def restore(self, pods: Path) -> None:
        """Read the checkpoints of pods that an earlier agent started."""
        if self.policy != STATIC:
            return
        for path in pods.glob(f"*/{CPU_CHECKPOINT}"):
            with contextlib.suppress(OSError, ValueError, AttributeError, RecursionError):
                own = json.loads(path.read_text())
                self.assignments[path.parent.name] = {
                    n: parse_cpuset(cpus) for n, cpus in own.items()
                }

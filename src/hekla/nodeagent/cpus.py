"""CPUs that pods have to themselves, as kubelet's static CPU manager gives them.

A container of a Guaranteed pod that asks for whole CPUs gets them alone, from the NUMA nodes that
the scheduler decided on or else from as few as will do; everybody else shares the rest. Who has
which is noted in the pods' directories before it is used, so the next agent knows it too.

What a newcomer gets wrong: when every CPU is somebody's own, those who share use all of them. They
asked for none, and nothing could run at all otherwise.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hekla.api.numa import NONE, RESTRICTED, SINGLE, STATIC, Taken, fewest, read_decision
from hekla.api.wellknown import TOPOLOGY_DECISION
from hekla.nodeagent.machine import NotEnough
from hekla.units.cpusets import format_cpuset, parse_cpuset
from hekla.units.objects import Object
from hekla.units.quantity import parse_quantity

NOTE = "cpus"
"""In a pod's directory: the CPUs of each of its containers."""


@dataclass(frozen=True, order=True, slots=True)
class Place:
    """Where a CPU is; threads of one core have equal places."""

    numa: int
    socket: int
    core: int


@dataclass
class Cpus:
    """Who has which CPUs of this machine to itself."""

    usable: frozenset[int]
    places: Mapping[int, Place]
    """Of every CPU; none where the machine does not tell."""
    policy: str = NONE
    topology_policy: str = NONE
    taken: dict[str, dict[str, set[int]]] = field(default_factory=dict)
    """By the pod's UID and the container's name."""

    def free(self) -> frozenset[int]:
        """What is nobody's own."""
        held = {cpu for own in self.taken.values() for cpus in own.values() for cpu in cpus}
        return self.usable - held

    def shared(self) -> set[int]:
        """What those use who have no CPUs of their own."""
        return set(self.free() or self.usable)

    def wanted(self, pod: Object, container: Object) -> int:
        """How many a container is to have alone; 0 for those that share."""
        if self.policy != STATIC or (pod.get("status") or {}).get("qosClass") != "Guaranteed":
            return 0
        if all(each["name"] != container["name"] for each in pod["spec"]["containers"]):
            return 0  # it runs before the others, and goes
        asked = (container.get("resources") or {}).get("requests") or {}
        milli = parse_quantity(asked.get("cpu", 0)).milli_value()
        return max(milli // 1000, 0) if milli % 1000 == 0 else 0

    def give(self, pod: Object, container: Object) -> set[int]:
        """A container's own, for as long as its pod lives; none for those that share."""
        count = self.wanted(pod, container)
        if not count:
            return set()
        uid, name = pod["metadata"]["uid"], container["name"]
        known = self.taken.get(uid, {})
        if name not in known:
            notes = pod["metadata"].get("annotations") or {}
            wished = read_decision(notes.get(TOPOLOGY_DECISION))
            for cpu in (cpu for own in known.values() for cpu in own):
                numa = self._numa(cpu)
                wished[numa] = wished.get(numa, 0) - 1
            found = self._choose(count, wished)
            known = self.taken.setdefault(uid, {})
            known[name] = found
        return known[name]

    def take_back(self, uid: str) -> bool:
        """Whether the pod had any."""
        return self.taken.pop(uid, None) is not None

    # --- choosing -----------------------------------------------------------------------------

    def _numa(self, cpu: int) -> int:
        return self.places[cpu].numa if cpu in self.places else 0

    def _choose(self, count: int, wished: Taken) -> set[int]:
        free = self._by_numa(self.free())
        left = sum(map(len, free.values()))
        if left < count:
            raise NotEnough(f"needs {count} CPUs of its own, and {left} are free here just now")
        chosen: list[int] = []
        for numa, most in self._turns(free, count, wished):
            part = free[numa][: min(most, count - len(chosen))]
            del free[numa][: len(part)]
            chosen += part
        self._admit(chosen, count)
        return set(chosen)

    def _by_numa(self, cpus: Iterable[int]) -> dict[int, list[int]]:
        """Threads of one core beside each other, so that cores are given whole where they can."""
        out: dict[int, list[int]] = {}
        for cpu in sorted(cpus, key=lambda cpu: (self.places.get(cpu, Place(0, 0, 0)), cpu)):
            out.setdefault(self._numa(cpu), []).append(cpu)
        return out

    def _turns(
        self, free: Mapping[int, list[int]], count: int, wished: Taken
    ) -> list[tuple[int, int]]:
        """NUMA nodes in the order they are asked, and for how many at most."""
        turns = [(n, cpus) for n, cpus in sorted(wished.items()) if cpus > 0 and n in free]
        enough = [numa for numa in free if len(free[numa]) >= count]
        if enough:  # the fullest that will do
            turns.append((min(enough, key=lambda numa: (len(free[numa]), numa)), count))
        by_free = sorted(free, key=lambda numa: (-len(free[numa]), numa))
        return turns + [(numa, count) for numa in by_free]

    def _admit(self, chosen: Iterable[int], count: int) -> None:
        used = len({self._numa(cpu) for cpu in chosen})
        if self.topology_policy == SINGLE and used > 1:
            raise NotEnough(f"needs {count} CPUs of one NUMA node, and none has so many free now")
        if self.topology_policy == RESTRICTED and used > self._least(count):
            raise NotEnough(f"needs {count} CPUs close together, and they are apart just now")

    def _least(self, count: int) -> int:
        """NUMA nodes that so many CPUs take on an empty machine."""
        sizes = sorted((len(cpus) for cpus in self._by_numa(self.usable).values()), reverse=True)
        return fewest(sizes, count) or len(sizes)

    # --- on disk ------------------------------------------------------------------------------

    def note(self, uid: str, directory: Path) -> None:
        """Keep what a pod has in its directory."""
        own = {name: format_cpuset(cpus) for name, cpus in self.taken.get(uid, {}).items()}
        if own:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            (directory / NOTE).write_text(json.dumps(own))

    def recall(self, pods: Path) -> None:
        """What an earlier agent gave to pods that may still run."""
        if self.policy != STATIC:
            return
        for path in pods.glob(f"*/{NOTE}"):
            with contextlib.suppress(OSError, ValueError, AttributeError, RecursionError):
                own = json.loads(path.read_text())
                self.taken[path.parent.name] = {n: parse_cpuset(cpus) for n, cpus in own.items()}

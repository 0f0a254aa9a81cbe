"""Limits on memory, CPU and processes through cgroups v2 or v1, if the user may write them.

A container without a cgroup (no privileges, no cgroups) runs without limits. An out-of-memory kill
is detected by the counter of the cgroup.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hekla.api.history import PodUsage

ROOT = Path("/sys/fs/cgroup")
PARENT = "hekla"
PERIOD_US = 100_000
CPUACCT = "cpuacct"
V1_CONTROLLERS = ("memory", "cpu", CPUACCT, "pids")
CPUSET = "cpuset"


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a container."""

    memory_bytes: int | None = None
    cpu_milli: int | None = None
    processes: int | None = None
    cpus: str = ""
    """The CPUs it may use, such as `0-3,8`; empty for no such limit."""


class Group:
    """The cgroup of one container: one directory in v2, one per controller in v1."""

    def __init__(self, directories: Mapping[str, Path]) -> None:
        self._directories = dict(directories)

    @property
    def paths(self) -> list[Path]:
        return sorted(set(self._directories.values()))

    def pin(self, cpus: str) -> None:
        """Restrict the group to these CPUs."""
        directory = self._directories.get(CPUSET) or self._directories.get("unified")
        if directory is not None:
            _put(directory / "cpuset.cpus", cpus)

    def out_of_memory(self) -> bool:
        """Return whether the kernel killed a process here because of the memory limit."""
        for directory in self.paths:
            for name in ("memory.events", "memory.oom_control"):
                with contextlib.suppress(OSError, ValueError):
                    for line in (directory / name).read_text().splitlines():
                        key, _, count = line.partition(" ")
                        if key == "oom_kill" and int(count) > 0:
                            return True
        return False

    def usage(self) -> PodUsage | None:
        """Return what the processes of the group have used so far; None if it is not measured.

        The memory includes the page cache, as in the limit.
        """
        cpu_s, peak_bytes = self._cpu_seconds(), self._memory_peak_bytes()
        return None if cpu_s is None or peak_bytes is None else PodUsage(cpu_s, peak_bytes)

    def _cpu_seconds(self) -> float | None:
        for directory in self.paths:
            with contextlib.suppress(OSError, ValueError):
                return int((directory / "cpuacct.usage").read_text()) / 1e9
            with contextlib.suppress(OSError, ValueError):
                for line in (directory / "cpu.stat").read_text().splitlines():
                    key, _, value = line.partition(" ")
                    if key == "usage_usec":
                        return int(value) / 1e6
        return None

    def _memory_peak_bytes(self) -> int | None:
        for directory in self.paths:
            for name in ("memory.peak", "memory.max_usage_in_bytes"):
                with contextlib.suppress(OSError, ValueError):
                    return int((directory / name).read_text())
        return None

    def kill(self) -> None:
        """Kill all processes of the group, including those that left the process group."""
        for directory in self.paths:
            with contextlib.suppress(OSError):
                (directory / "cgroup.kill").write_text("1")
                continue
            with contextlib.suppress(OSError):
                for word in (directory / "cgroup.procs").read_text().split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(word), signal.SIGKILL)

    def remove(self) -> None:
        for directory in self.paths:
            with contextlib.suppress(OSError):
                directory.rmdir()


class Cgroups:
    """Creates cgroups, if this machine allows it."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root
        self.version = self._find_version()

    def _find_version(self) -> int:
        if (self._root / "cgroup.controllers").exists():
            return 2 if os.access(self._root, os.W_OK) else 0
        if (self._root / "memory").is_dir() and os.access(self._root / "memory", os.W_OK):
            return 1
        return 0

    def can_pin(self) -> bool:
        """Return whether groups can be restricted to CPUs."""
        if self.version == 2:
            return CPUSET in (self._root / "cgroup.controllers").read_text().split()
        return self.version == 1 and os.access(self._root / CPUSET, os.W_OK)

    def make(self, name: str, limits: Limits) -> Group | None:
        """Create a group with limits; None without cgroups."""
        if (last := self.find(name)) is not None:
            last.remove()  # what the last run used is not part of this one's use
        try:
            if self.version == 2:
                return self._make_v2(name, limits)
            if self.version == 1:
                return self._make_v1(name, limits)
        except OSError:
            return None
        return None

    def find(self, name: str) -> Group | None:
        """Return a group that an earlier agent created."""
        found = {
            key: base / name for key, base in self._parents().items() if (base / name).is_dir()
        }
        return Group(found) if found else None

    def of(self, pod: str) -> list[Group]:
        """Return all groups of a pod, by its UID."""
        names = {path.name for base in self._parents().values() for path in base.glob(f"{pod}-*")}
        return [group for name in sorted(names) if (group := self.find(name)) is not None]

    def _parents(self) -> dict[str, Path]:
        if self.version == 2:
            return {"unified": self._root / PARENT}
        if self.version == 1:
            return {name: self._root / name / PARENT for name in (*V1_CONTROLLERS, CPUSET)}
        return {}

    def _make_v2(self, name: str, limits: Limits) -> Group:
        parent = self._root / PARENT
        parent.mkdir(exist_ok=True)
        for directory in (self._root, parent):
            for controllers in ("+memory +cpu +pids", f"+{CPUSET}"):
                with contextlib.suppress(OSError):
                    (directory / "cgroup.subtree_control").write_text(controllers)
        directory = parent / name
        directory.mkdir(exist_ok=True)
        if limits.memory_bytes is not None:
            _put(directory / "memory.max", limits.memory_bytes)
            with contextlib.suppress(OSError):
                _put(directory / "memory.swap.max", 0)
        if limits.cpu_milli is not None:
            _put(directory / "cpu.max", f"{_quota(limits.cpu_milli)} {PERIOD_US}")
        if limits.processes is not None:
            _put(directory / "pids.max", limits.processes)
        if limits.cpus:
            _put(directory / "cpuset.cpus", limits.cpus)
        return Group({"unified": directory})

    def _make_v1(self, name: str, limits: Limits) -> Group:
        directories: dict[str, Path] = {}
        for controller in V1_CONTROLLERS:
            base = self._root / controller
            if not base.is_dir():
                continue
            directory = base / PARENT / name
            try:
                directory.mkdir(parents=True, exist_ok=True)
            except OSError:
                if controller == CPUACCT:
                    continue  # it only measures
                raise
            directories[controller] = directory
        if limits.memory_bytes is not None and "memory" in directories:
            _put(directories["memory"] / "memory.limit_in_bytes", limits.memory_bytes)
        if limits.cpu_milli is not None and "cpu" in directories:
            _put(directories["cpu"] / "cpu.cfs_period_us", PERIOD_US)
            _put(directories["cpu"] / "cpu.cfs_quota_us", _quota(limits.cpu_milli))
        if limits.processes is not None and "pids" in directories:
            _put(directories["pids"] / "pids.max", limits.processes)
        if limits.cpus:
            directories[CPUSET] = self._make_cpuset(name, limits.cpus)
        return Group(directories)

    def _make_cpuset(self, name: str, cpus: str) -> Path:
        """Create a v1 cpuset, which accepts processes only once cpus and mems are set."""
        directory = self._root / CPUSET
        mems = (directory / "cpuset.mems").read_text().strip()
        for part, allowed in (
            (PARENT, (directory / "cpuset.cpus").read_text().strip()),
            (name, cpus),
        ):
            directory = directory / part
            directory.mkdir(exist_ok=True)
            _put(directory / "cpuset.mems", mems)
            _put(directory / "cpuset.cpus", allowed)
        return directory


def _quota(cpu_milli: int) -> int:
    return max(1000, cpu_milli * PERIOD_US // 1000)


def _put(path: Path, value: int | str) -> None:
    path.write_text(str(value))

"""CPU and memory of running processes, from /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

QUIET_S = 3.0
QUIET_SHARE = 0.1
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Return user and system seconds of a process."""
    # The name is in parentheses and may contain spaces.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory_mb(pid: int, field: str = "VmRSS") -> float:
    """Return the resident memory, or another field of /proc/PID/status."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"no {field} in /proc/{pid}/status")


def peak_mb(pid: int) -> float:
    """Return the peak resident memory."""
    return memory_mb(pid, "VmHWM")


def cpu_of(pids: Mapping[str, int]) -> dict[str, float]:
    return {name: cpu_s(pid) for name, pid in pids.items()}


def busy_s() -> float:
    """Return the busy seconds of all CPUs together."""
    user, nice, system, _, _, irq, softirq, *_ = map(
        int, Path("/proc/stat").read_text().split()[1:9]
    )
    return (user + nice + system + irq + softirq) / _TICKS


def wait_for_quiet(patience_s: float) -> None:
    """Wait until the CPUs are idle for a few seconds, at most `patience_s`."""
    cores, deadline = os.cpu_count() or 1, time.monotonic() + patience_s
    while time.monotonic() < deadline:
        before = busy_s()
        time.sleep(QUIET_S)
        if (busy_s() - before) / (QUIET_S * cores) < QUIET_SHARE:
            return


def describe_machine() -> str:
    model = "unknown CPU"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory = Path("/proc/meminfo").read_text().split()[1]
    load = os.getloadavg()[0]
    gib = int(memory) / 1024**2
    return f"{os.cpu_count()} × {model}, {gib:.0f} GiB, load {load:.1f} when it began"

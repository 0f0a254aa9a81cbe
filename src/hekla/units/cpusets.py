"""Sets of CPUs as Linux writes them: `0-3,8`."""

from __future__ import annotations

from collections.abc import Iterable

MAX_CPU = 8192


def parse_cpuset(text: str) -> set[int]:
    """Return the CPUs of a list; raise ValueError if it is invalid."""
    out: set[int] = set()
    for part in text.strip().split(",") if text.strip() else ():
        first, dash, last = part.strip().partition("-")
        low, high = int(first), int(last) if dash else int(first)
        if not 0 <= low <= high <= MAX_CPU:
            raise ValueError(f"{part!r} is no range of CPUs")
        out.update(range(low, high + 1))
    return out


def format_cpuset(cpus: Iterable[int]) -> str:
    parts: list[str] = []
    ordered = sorted(set(cpus))
    for number, cpu in enumerate(ordered):
        if number and ordered[number - 1] == cpu - 1:
            start = parts[-1].partition("-")[0]
            parts[-1] = f"{start}-{cpu}"
        else:
            parts.append(str(cpu))
    return ",".join(parts)

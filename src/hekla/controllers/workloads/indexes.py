"""Sets of completion indexes in the notation of Jobs: `0-2,5`. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def parse(text: str | None, limit: int) -> set[int]:
    """Return the indexes below `limit` in a text; invalid parts are ignored."""
    found: set[int] = set()
    for part in (text or "").split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            found.update(range(int(first), min(int(last or first), limit - 1) + 1))
    return found


def write(indexes: Iterable[int]) -> str:
    """Return the shortest text; two neighbours are `3,4`, three are `3-5`, as upstream."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    parts = []
    for first, last in runs:
        joiner = "," if last == first + 1 else "-"
        parts.append(str(first) if first == last else f"{first}{joiner}{last}")
    return ",".join(parts)

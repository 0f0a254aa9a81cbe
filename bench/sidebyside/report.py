"""Rounds of a case as a table of medians with their range, and ratios between systems."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.sidebyside.run import Result

Json = dict[str, Any]
Getter = Callable[[Json], float | None]


def _of(*path: str) -> Getter:
    def get(numbers: Json) -> float | None:
        found: Any = numbers
        for key in path:
            found = found.get(key) if isinstance(found, Mapping) else None
        return None if found is None else float(found)

    return get


COLUMNS: tuple[tuple[str, Getter, str], ...] = (
    ("all bound s", _of("last_bind_s"), ".1f"),
    ("pods/s", _of("pods_per_s"), ".0f"),
    ("pods/s alone¹", _of("pods_per_s_alone"), ".0f"),
    ("first bind s", _of("first_bind_s"), ".2f"),
    ("wait P50 s", _of("wait_p50_s"), ".3f"),
    ("wait P99 s", _of("wait_p99_s"), ".3f"),
    ("gang P50 s", _of("gang_p50_s"), ".2f"),
    ("gang P99 s", _of("gang_p99_s"), ".2f"),
    ("calls/pod", _of("calls_per_pod"), ".2f"),
    ("CPU ms/pod", _of("scheduler_cpu_ms_per_pod"), ".2f"),
    ("own CPU ms/pod", _of("own_cpu_ms_per_pod"), ".2f"),
    ("CPU s", _of("cpu_s", "scheduler"), ".1f"),
    ("server CPU s", _of("cpu_s", "kube-apiserver"), ".1f"),
    ("all CPU ms/pod", _of("all_cpu_ms_per_pod"), ".2f"),
    ("others' share", _of("others_share"), ".2f"),
    ("peak MB", _of("peak_mb", "scheduler"), ".0f"),
    ("faults", lambda numbers: float(sum(numbers["faults"].values())), ".0f"),
)

FOOTNOTE = "¹ with the share taken out that others had of the machine until all was bound"


def table(rounds: Mapping[str, Sequence[Result]]) -> str:
    """Return Markdown: a row for each system with median and (range) of its rounds."""
    lines = [
        "| system | " + " | ".join(title for title, _, _ in COLUMNS) + " |",
        "|---" * (len(COLUMNS) + 1) + "|",
    ]
    for system, results in rounds.items():
        cells = [_cell([get(r.numbers) for r in results], form) for _, get, form in COLUMNS]
        lines.append(f"| {system} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(values: Sequence[float | None], form: str) -> str:
    known = sorted(value for value in values if value is not None)
    if not known:
        return ""
    median = format(statistics.median(known), form)
    low, high = format(known[0], form), format(known[-1], form)
    return median if low == high else f"{median} ({low}–{high})"


def ratios(rounds: Mapping[str, Sequence[Result]], ours: str = "hekla") -> list[str]:
    """Return ratios of hekla to the others, by medians of the same run."""
    if ours not in rounds:
        return []
    found = []
    for other in rounds:
        if other == ours:
            continue
        words = []
        for title, path in (
            ("pods/s", ("pods_per_s",)),
            ("pods/s alone¹", ("pods_per_s_alone",)),
            ("P50 wait", ("wait_p50_s",)),
            ("CPU per pod", ("scheduler_cpu_ms_per_pod",)),
            ("CPU per pod of all together", ("all_cpu_ms_per_pod",)),
            ("peak memory", ("peak_mb", "scheduler")),
        ):
            mine, theirs = (_median(rounds[name], _of(*path)) for name in (ours, other))
            if mine is not None and theirs:
                words.append(f"{title} {mine / theirs:.2f}×")
        found.append(f"{ours} against {other}: " + ", ".join(words))
    return found


def _median(results: Sequence[Result], get: Getter) -> float | None:
    known = [value for value in (get(r.numbers) for r in results) if value is not None]
    return statistics.median(known) if known else None

"""The page of `hekla top` as lines of text. Pure functions.

Note: lines hold names and messages of tenants. `fitted` makes control characters visible, so that a
line is one line; only whole lines have a style.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hekla.api import arrays
from hekla.api.wellknown import CPU, MEMORY
from hekla.apiserver.tables.age import age
from hekla.cli import terminal
from hekla.cli.capacity import node_table
from hekla.cli.capacity.gpus import FREE, GpuRow
from hekla.cli.capacity.overview import JobRow, Overview
from hekla.cli.capacity.usage import GPU, Nanos, NodeUse, add, amount_text, share_text
from hekla.units.quantity import NANOS

MAX_NODES: Final = 30
MAX_GPUS: Final = 64
MAX_JOBS: Final = 500
"""Rows of a section; the others are counted, and `-o json` has all."""
MIB: Final = 2**20 * NANOS
_AMOUNTS: Final = (CPU, MEMORY, GPU)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text in one style: plain, title, header, bad or reason."""

    text: str = ""
    style: str = ""


def page(found: Overview, now: float) -> Iterator[Line]:
    """Yield the sections of the page."""
    if hidden := str(found.scope):
        yield Line(hidden, "bad")
    if "nodes" not in found.scope.hidden:
        yield from _section(_nodes_title(found), _nodes(found.nodes, now))
    if found.gpus:
        yield from _section(_gpus_title(found), _gpus(found.gpus))
    yield from _section(_counted(len(found.queues), "queue"), _queues(found))
    yield from _section(_counted(len(found.running), "running job"), _running(found.running, now))
    yield from _section(_counted(len(found.waiting), "waiting job"), _waiting(found.waiting, now))


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _section(title: str, lines: Iterator[Line]) -> Iterator[Line]:
    yield Line(title, "title")
    yield from lines
    yield Line()


def _nodes_title(found: Overview) -> str:
    nodes = found.nodes
    used, of = Nanos(), Nanos()
    for use in nodes:
        add(used, use.allocated)
        add(of, use.info.allocatable)
    states = Counter(use.state.removesuffix(",simulated") for use in nodes)
    words = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    amounts = [
        f"{name} {share_text(name, used.get(name, 0), of[name])}"
        for name in _AMOUNTS
        if of.get(name)
    ]
    text = f"{_counted(len(nodes), 'node')}: {words or 'none'}"
    if not amounts:
        return text
    whose = "requests of the pods that you see" if "pods" in found.scope.partial else "requests"
    return f"{text}; allocated: {', '.join(amounts)} ({whose}; use is not measured)"


def _nodes(nodes: Sequence[NodeUse], now: float) -> Iterator[Line]:
    """Yield the nodes that take no pods first, then the fullest."""
    if not nodes:
        return
    first = sorted(nodes, key=lambda use: (use.takes_pods, -_fullness(use), use.info.name))
    shown = first[:MAX_NODES]
    header, *rows = node_table.table(shown, now)
    yield Line(header, "header")
    for use, row in zip(shown, rows, strict=True):
        yield Line(row, "" if use.takes_pods else "bad")
    yield from _more(len(nodes) - len(shown), "hekla nodes")


def _fullness(use: NodeUse) -> float:
    """Return the largest allocated fraction of CPU, memory and GPUs."""
    of = use.info.allocatable
    return max((use.allocated.get(n, 0) / of[n] for n in _AMOUNTS if of.get(n)), default=0.0)


def _gpus_title(found: Overview) -> str:
    rows = found.gpus
    free = sum(int(row.gpu.split()[0]) if " of " in row.gpu else 1 for row in rows if _is_free(row))
    text = f"GPUs: {free} free"
    if "pods" in found.scope.partial:
        text = f"GPUs: at most {free} free, by the pods that you see"
    if any(" of " in row.gpu for row in rows):
        text += " (the node chooses whole GPUs and does not report which)"
    return text


def _is_free(row: GpuRow) -> bool:
    return row.pod == FREE and not row.namespace


def _gpus(rows: Sequence[GpuRow]) -> Iterator[Line]:
    """Yield one line for each GPU and holder, then one for equal free GPUs of a node."""
    lines = _folded(sorted(rows, key=_is_free))
    shown = lines[:MAX_GPUS]
    table = [
        (
            row.node,
            row.gpu,
            f"{amount_text(MEMORY, row.memory * MIB)}" if row.memory else "-",
            row.pod if _is_free(row) else f"{row.namespace}/{row.pod}",
            row.job or "-",
            row.user or "-",
            row.type or "-",
        )
        for row in shown
    ]
    yield from _rows(("Node", "GPU", "Memory", "Pod", "Job", "User", "Type"), table)
    yield from _more(len(lines) - len(shown), "hekla top -o json")


def _folded(rows: Sequence[GpuRow]) -> list[GpuRow]:
    """Return the rows with equal free GPUs of a node in one: `0-7`."""
    folded: list[GpuRow] = []
    for (is_free, _), group in itertools.groupby(
        rows, lambda row: (_is_free(row), replace(row, gpu=""))
    ):
        same = list(group)
        indices = [int(row.gpu) for row in same if row.gpu.isdecimal()]
        if is_free and len(indices) == len(same):
            same = [replace(same[0], gpu=arrays.compress(indices))]
        folded += same
    return folded


def _queues(found: Overview) -> Iterator[Line]:
    if not found.queues:
        return
    runs = Counter(row.queue for row in found.running)
    waits = Counter(row.queue for row in found.waiting)
    deserved = ("Deserved",) if found.has_deserved else ()
    header = ("Name", "State", "Running", "Waiting", "Allocated", *deserved, "Limit")
    rows = [
        (
            queue.name,
            queue.state,
            str(runs[queue.name]),
            str(waits[queue.name]),
            _amounts_text(queue.allocated),
            *([_amounts_text(queue.deserved)] if deserved else []),
            _amounts_text(queue.capability),
        )
        for queue in found.queues
    ]
    yield from _rows(header, rows)


def _amounts_text(amounts: Nanos) -> str:
    texts = (f"{name} {amount_text(name, amounts[name])}" for name in _AMOUNTS if amounts.get(name))
    return ", ".join(texts) or "-"


def _running(jobs: Sequence[JobRow], now: float) -> Iterator[Line]:
    header = ("Job", "Queue", "User", "Pods", "CPU", "Memory", "GPU", "Age", "Nodes", "Problem")
    rows = [
        (
            *_names(row),
            f"{row.running}/{row.wanted}",
            *(amount_text(name, row.allocated.get(name, 0)) for name in _AMOUNTS),
            age(row.created, now),
            _nodes_text(row),
            row.reason,
        )
        for row in jobs[:MAX_JOBS]
    ]
    yield from _rows(header, rows)
    yield from _more(len(jobs) - MAX_JOBS, "hekla job list -A")


def _waiting(jobs: Sequence[JobRow], now: float) -> Iterator[Line]:
    header = ("Job", "Queue", "User", "Pods", "Needs", "Age", "Reason")
    rows = [
        (
            *_names(row),
            str(row.wanted),
            _amounts_text(row.requested),
            age(row.created, now),
            row.reason,
        )
        for row in jobs[:MAX_JOBS]
    ]
    yield from _rows(header, rows)
    yield from _more(len(jobs) - MAX_JOBS, "hekla job list -A")


def _names(row: JobRow) -> tuple[str, str, str]:
    return f"{row.namespace}/{row.name}", row.queue, row.user or "-"


def _nodes_text(row: JobRow) -> str:
    first = min(row.nodes)
    return first if len(row.nodes) == 1 else f"{first} + {len(row.nodes) - 1}"


def _rows(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[Line]:
    if not rows:
        return
    first, *lines = node_table.aligned([header, *rows])
    yield Line(first, "header")
    for row, line in zip(rows, lines, strict=True):
        yield Line(line, "reason" if row[-1] and header[-1] in ("Reason", "Problem") else "")


def _more(count: int, command: str) -> Iterator[Line]:
    if count > 0:
        yield Line(f"… and {count} more: `{command}`")


def fitted(text: str, width: int | None) -> str:
    """Return a text as one line of at most `width` cells, with control characters visible."""
    line = terminal.escaped(text).replace("\n", " ").replace("\t", " ")
    if width is None:
        return line
    from rich.cells import cell_len, set_cell_size

    return line if cell_len(line) <= width else set_cell_size(line, width - 1) + "…"

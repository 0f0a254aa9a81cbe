"""Nodes as a table, as JSON, and one node in full. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hekla.api.wellknown import CPU, MEMORY, PODS
from hekla.apiserver.tables.age import age
from hekla.cli.capacity.usage import (
    DRAINED,
    GPU,
    NodeUse,
    PodUse,
    amount_text,
    canonical,
    share_text,
)

HEADERS = ("Name", "State", "CPU", "Memory", "GPU", "Pods", "Age", "Reason")
WIDE_HEADERS = (*HEADERS[:-1], "Taints", "Other", "Reason")
GAP = 2
_SHOWN_APART = (CPU, MEMORY, GPU, PODS)


def cells(use: NodeUse, now: float, *, wide: bool = False) -> tuple[str, ...]:
    """Return the row of a node: amounts are `allocated/allocatable`."""
    amounts = (
        share_text(name, use.allocated.get(name, 0), use.info.allocatable.get(name, 0))
        for name in (CPU, MEMORY, GPU)
    )
    most = amount_text(PODS, use.info.allocatable.get(PODS, 0))
    row = (use.info.name, use.state, *amounts, f"{use.pods}/{most}", age(use.info.created, now))
    if not wide:
        return (*row, use.reason)
    return (*row, ",".join(use.info.taints) or "-", _other(use) or "-", use.reason)


def _other(use: NodeUse) -> str:
    """Return the allocated resources that have no column of their own."""
    return ",".join(
        f"{name}={share_text(name, amount, use.info.allocatable.get(name, 0))}"
        for name, amount in sorted(use.allocated.items())
        if amount and name not in _SHOWN_APART and not name.endswith("/gpu")
    )


def aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return rows as lines with equally wide columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "".join(f"{cell:<{width + GAP}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def table(uses: Sequence[NodeUse], now: float, *, wide: bool = False) -> list[str]:
    """Return the table of nodes, header first."""
    rows = [cells(use, now, wide=wide) for use in uses]
    return aligned([WIDE_HEADERS if wide else HEADERS, *rows])


def as_json(use: NodeUse) -> dict[str, Any]:
    """Return a node for programs, with amounts as Kubernetes writes them."""
    info = use.info
    found = {
        "name": info.name,
        "state": use.state,
        "takesPods": use.takes_pods,
        "reason": use.reason,
        "allocatable": canonical(info.allocatable),
        "allocated": canonical(use.allocated),
        "pods": use.pods,
        "taints": list(info.taints),
        "createdAt": info.created,
    }
    if info.drain is not None:
        drain = {"reason": info.drain.reason, "by": info.drain.by, "at": info.drain.at}
        found["drain"] = {**drain, "state": "draining" if use.is_busy else DRAINED}
    return found


def description(use: NodeUse, pods: Sequence[PodUse], now: float) -> Iterator[str]:
    """Yield a node in full: why it refuses pods, what it has left, and its pods."""
    info = use.info
    yield f"node {info.name} is {use.state}"
    yield from _refusals(use, now)
    yield ""
    names: list[str] = [name for name in (CPU, MEMORY, GPU) if name in info.allocatable]
    names += sorted(name for name in use.allocated if name not in (*_SHOWN_APART, *names))
    rows: list[tuple[str, ...]] = [("Resource", "Allocated", "Free", "Allocatable")]
    for name in names:
        used, of = use.allocated.get(name, 0), info.allocatable.get(name, 0)
        amounts = (amount_text(name, amount) for amount in (used, of - used, of))
        rows.append((name, *amounts))
    yield from aligned(rows)
    yield ""
    here = [pod for pod in pods if pod.is_on_node and pod.node == info.name]
    if not here:
        yield "no pods run on it"
        return
    yield from aligned([("Namespace", "Pod", "Phase", "CPU", "Memory", "GPU", "Age"),
                        *(_pod_row(pod, now) for pod in sorted(here, key=_by_name))])  # fmt: skip


def _by_name(pod: PodUse) -> tuple[str, str]:
    return pod.namespace, pod.name


def _pod_row(pod: PodUse, now: float) -> tuple[str, ...]:
    amounts = (amount_text(name, pod.requests.get(name, 0)) for name in (CPU, MEMORY, GPU))
    return (pod.namespace, pod.name, pod.phase, *amounts, age(pod.created, now))


def _refusals(use: NodeUse, now: float) -> Iterator[str]:
    """Yield what keeps new pods away from a node."""
    info = use.info
    if info.ready != "True":
        yield f"  takes no new pods: {info.problem or 'it does not report that it is ready'}"
    if info.drain is not None:
        by = f" by {info.drain.by}" if info.drain.by else ""
        since = f", {age(info.drain.at, now)} ago" if info.drain.at else ""
        reason = info.drain.reason or "cordoned without a reason"
        yield f"  takes no new pods: drained{by}{since}: {reason}"
        yield f"  next: hekla undrain {info.name}"
    for taint in info.taints:
        yield f"  takes only pods that tolerate the taint {taint}"
    for name in (CPU, MEMORY, GPU):
        of = info.allocatable.get(name, 0)
        if of and use.allocated.get(name, 0) >= of:
            yield f"  takes no pods that request {name}: all of it is allocated"
    most = info.allocatable.get(PODS, 0) // 10**9
    if use.pods >= most:
        yield f"  takes no new pods: it has {use.pods} of at most {most}"

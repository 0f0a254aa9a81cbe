"""Resource requests and limits of a pod, computed as Kubernetes does.

The request of a pod is the maximum of its initialization and its running phase. Init containers run
one after another, so their maximum counts, except sidecars (init containers with
`restartPolicy: Always`), which keep running and add up. Overhead is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hekla.api.rules.amounts import is_extended
from hekla.units.quantity import Quantity, parse_quantity

Amounts = dict[str, Quantity]

# Native resources; everything else is extended and has no separate limit in quotas.
_NATIVE = ("cpu", "memory", "ephemeral-storage")
_ONE = Quantity.from_int(1)


def add(total: Amounts, more: Mapping[str, Quantity]) -> None:
    """Add amounts to `total`."""
    for name, amount in more.items():
        total[name] = total[name] + amount if name in total else amount


def _at_least(total: Amounts, floor: Mapping[str, Quantity]) -> None:
    for name, amount in floor.items():
        if name not in total or total[name] < amount:
            total[name] = amount


def _of(container: Mapping[str, Any], which: str) -> Amounts:
    amounts = (container.get("resources") or {}).get(which) or {}
    return {name: parse_quantity(text) for name, text in amounts.items()}


def _total(spec: Mapping[str, Any], which: str) -> Amounts:
    total: Amounts = {}
    for container in spec.get("containers") or ():
        add(total, _of(container, which))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        requested = _of(container, which)
        if container.get("restartPolicy") == "Always":
            add(sidecars, requested)
            add(total, requested)
            _at_least(peak, sidecars)
        else:
            add(requested, sidecars)
            _at_least(peak, requested)
    _at_least(total, peak)
    overhead = spec.get("overhead") or {}
    if overhead and (which == "requests" or total):
        amounts = {name: parse_quantity(text) for name, text in overhead.items()}
        add(total, amounts if which == "requests" else _present(amounts, total))
    return total


def _present(amounts: Amounts, total: Amounts) -> Amounts:
    """Return the overhead of resources that have a limit."""
    return {name: amount for name, amount in amounts.items() if name in total}


def pod_requests(spec: Mapping[str, Any]) -> Amounts:
    """Return the total requests of a pod spec."""
    return _total(spec, "requests")


def pod_limits(spec: Mapping[str, Any]) -> Amounts:
    """Return the total limits of a pod spec."""
    return _total(spec, "limits")


def quota_usage(spec: Mapping[str, Any]) -> Amounts:
    """Return a pod's usage with the names of quotas: `pods`, `cpu`, `requests.cpu`, …"""
    used: Amounts = {"pods": _ONE, "count/pods": _ONE}
    for name, amount in pod_requests(spec).items():
        if is_extended(name):
            used[f"requests.{name}"] = amount
        else:
            used[name] = amount
            used[f"requests.{name}"] = amount
    for name, amount in pod_limits(spec).items():
        if name in _NATIVE:
            used[f"limits.{name}"] = amount
    return used

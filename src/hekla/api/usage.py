"""What a pod asks for, added up as Kubernetes does: for quotas, PodGroups and schedulers alike.

A pod's request is the larger of what it needs while initialising and while running. Init containers
run one after another, so their *maximum* counts, except sidecars (init containers that restart
always), which stay and therefore add up. Overhead comes on top.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hekla.api.rules.amounts import is_extended
from hekla.units.quantity import Quantity, parse_quantity

Amounts = dict[str, Quantity]

# Resources known without a domain; everything else is "extended" and has no separate limit.
_NATIVE = ("cpu", "memory", "ephemeral-storage")
_ONE = Quantity.from_int(1)


def add(total: Amounts, more: Mapping[str, Quantity]) -> None:
    """Add amounts into `total`."""
    for name, amount in more.items():
        total[name] = total[name] + amount if name in total else amount


def _at_least(total: Amounts, floor: Mapping[str, Quantity]) -> None:
    for name, amount in floor.items():
        if name not in total or total[name] < amount:
            total[name] = amount


def _of(container: Mapping[str, Any], which: str) -> Amounts:
    given = (container.get("resources") or {}).get(which) or {}
    return {name: parse_quantity(text) for name, text in given.items()}


def _total(spec: Mapping[str, Any], which: str) -> Amounts:
    total: Amounts = {}
    for container in spec.get("containers") or ():
        add(total, _of(container, which))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        asked = _of(container, which)
        if container.get("restartPolicy") == "Always":
            add(sidecars, asked)
            add(total, asked)
            _at_least(peak, sidecars)
        else:
            add(asked, sidecars)
            _at_least(peak, asked)
    _at_least(total, peak)
    overhead = spec.get("overhead") or {}
    if overhead and (which == "requests" or total):
        amounts = {name: parse_quantity(text) for name, text in overhead.items()}
        add(total, amounts if which == "requests" else _present(amounts, total))
    return total


def _present(amounts: Amounts, total: Amounts) -> Amounts:
    """Overhead raises only those limits that exist."""
    return {name: amount for name, amount in amounts.items() if name in total}


def pod_requests(spec: Mapping[str, Any]) -> Amounts:
    """What a pod spec requests in all."""
    return _total(spec, "requests")


def pod_limits(spec: Mapping[str, Any]) -> Amounts:
    """What a pod spec is limited to in all."""
    return _total(spec, "limits")


def quota_usage(spec: Mapping[str, Any]) -> Amounts:
    """A pod's usage under the names quotas use: `pods`, `cpu`, `requests.cpu`, `limits.cpu`, …"""
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

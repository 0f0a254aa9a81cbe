"""PodDisruptionBudgets: allowed disruptions, counted from the stored pods.

In Kubernetes a controller refreshes this number in the budget's status. Here it is counted when an
eviction needs it, so it cannot be stale.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from hekla.apiserver import errors
from hekla.apiserver.admission.plugin import RelatedWrite
from hekla.apiserver.storage.selection import labels_of
from hekla.apiserver.storage.watch_cache import Entry
from hekla.units.objects import Object
from hekla.units.selectors import LabelSelector

if TYPE_CHECKING:
    from hekla.apiserver.registry.resources import Resources

BUDGETS = "policy/poddisruptionbudgets"


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """The counts of a budget."""

    expected: int
    healthy: int
    desired: int

    @property
    def allowed(self) -> int:
        return max(0, self.healthy - self.desired)


def budget_status(budget: Object, pods: list[Object]) -> BudgetStatus:
    """Count the pods of a budget."""
    spec = budget.get("spec") or {}
    counted = [pod for pod in pods if not _is_finished(pod)]
    expected = len(counted)
    if spec.get("maxUnavailable") is not None:
        desired = expected - _scaled(spec["maxUnavailable"], expected)
    else:
        desired = _scaled(spec.get("minAvailable", 1), expected)
    healthy = sum(1 for pod in counted if is_healthy(pod))
    return BudgetStatus(expected, healthy, max(0, desired))


def _scaled(value: Any, total: int) -> int:
    """Return a number, or a percentage of `total` rounded up as in Kubernetes."""
    if isinstance(value, str) and value.endswith("%"):
        return -(-int(value[:-1]) * total // 100)
    return int(value)


def _is_finished(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def is_healthy(pod: Object) -> bool:
    if "deletionTimestamp" in pod["metadata"]:
        return False
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def matching(resources: Resources, namespace: str, selector: LabelSelector) -> list[Object]:
    """Return the selected pods of a namespace, staged changes included."""
    return [
        msgspec.json.decode(entry.body)
        for entry in resources.store.heads("pods", f"{namespace}/")
        if selector.matches(labels_of(entry))
    ]


def _budgets_for(resources: Resources, namespace: str, pod: Entry) -> Iterator[Object]:
    table = resources.store.table(BUDGETS)
    for key in table.range(f"{namespace}/"):
        budget = msgspec.json.decode(table.entries[key].body)
        selector = LabelSelector.from_dict((budget.get("spec") or {}).get("selector"))
        if selector.matches(labels_of(pod)):
            yield budget


def recount(resources: Resources, namespace: str) -> list[RelatedWrite]:
    """Return the budgets of a namespace whose status is out of date."""
    changed = []
    for entry in resources.store.heads(BUDGETS, f"{namespace}/"):
        budget: Object = msgspec.json.decode(entry.body)
        selector = LabelSelector.from_dict((budget.get("spec") or {}).get("selector"))
        now = budget_status(budget, matching(resources, namespace, selector))
        status = {
            **(budget.get("status") or {}),
            "disruptionsAllowed": now.allowed,
            "currentHealthy": now.healthy,
            "desiredHealthy": now.desired,
            "expectedPods": now.expected,
            "observedGeneration": budget["metadata"].get("generation", 1),
        }
        if status != budget.get("status"):
            budget["status"] = status
            changed.append(RelatedWrite(BUDGETS, entry, budget))
    return changed


def check(resources: Resources, namespace: str, name: str) -> None:
    """Raise 429 if the eviction of this pod would violate its budget."""
    pod = resources.store.head("pods", f"{namespace}/{name}")
    if pod is None:
        raise errors.not_found("", "pods", name)
    obj = msgspec.json.decode(pod.body)
    if _is_finished(obj) or not (obj.get("spec") or {}).get("nodeName"):
        return  # a pod that does not run is not disrupted
    budgets = list(_budgets_for(resources, namespace, pod))
    if not budgets:
        return
    if len(budgets) > 1:
        raise errors.internal(
            f"pod {name!r} has more than one PodDisruptionBudget, which eviction does not support"
        )
    budget = budgets[0]
    selector = LabelSelector.from_dict(budget["spec"].get("selector"))
    now = budget_status(budget, matching(resources, namespace, selector))
    policy = budget["spec"].get("unhealthyPodEvictionPolicy") or "IfHealthyBudget"
    if not is_healthy(obj) and (policy == "AlwaysAllow" or now.healthy >= now.desired):
        return
    if now.allowed > 0:
        return
    budget_name = budget["metadata"]["name"]
    raise errors.too_many_requests(
        "Cannot evict pod as it would violate the pod's disruption budget.",
        0,
        causes=[
            {
                "reason": "DisruptionBudget",
                "message": f"The disruption budget {budget_name} needs {now.desired} healthy pods "
                f"and has {now.healthy} currently",
            }
        ],
    )

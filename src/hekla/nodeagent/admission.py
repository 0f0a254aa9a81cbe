"""Whether this node admits a pod that is bound to it, as the kubelet decides. Pure.

The scheduler binds pods that fit. A pod with a node name of its own never saw the scheduler, so the
agent checks again: what is asked for against what is left, node selector and affinity, NoExecute
taints, and what the pod's securityContext needs of this node. A pod that is not admitted fails with
the kubelet's reasons and messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hekla.api.pod_resources import add, pod_requests
from hekla.nodeagent.security_context import (
    REASON,
    Abilities,
    SecurityContextRefused,
    pod_credentials,
)
from hekla.units.objects import Object
from hekla.units.quantity import Quantity, parse_quantity
from hekla.units.selectors import Operator, Requirement

PODS = "pods"
OPERATORS: dict[str, Operator] = {
    "In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!", "Gt": ">", "Lt": "<",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a pod is not admitted: reason and message of its status."""

    reason: str
    message: str


def reject(
    pod: Object, node: Object, others: Iterable[Object], abilities: Abilities
) -> Rejection | None:
    """Return why a pod cannot run here beside the others; None if it can."""
    found = (
        _too_large(pod, node, others)
        or _other_node(pod, node)
        or _not_tolerated(pod, node)
        or _refused(pod, abilities)
    )
    return found and Rejection(found.reason, f"Pod was rejected: {found.message}")


def _too_large(pod: Object, node: Object, others: Iterable[Object]) -> Rejection | None:
    wanted = _with_pods(pod_requests(pod["spec"]))
    used: dict[str, Quantity] = {}
    for other in others:
        add(used, _with_pods(pod_requests(other["spec"])))
    offered = (node.get("status") or {}).get("allocatable") or {}
    # As in the kubelet: an extended resource that the node does not know is not the node's.
    wanted = {name: wanted[name] for name in wanted if "/" not in name or name in offered}
    for name, amount in sorted(wanted.items(), key=lambda item: (item[0] != PODS, item[0])):
        before = used.get(name, Quantity.from_int(0))
        limit = parse_quantity(offered.get(name, 0))
        if not amount.is_zero and (before + amount) > limit:
            facts = ", ".join(
                f"{word}: {_plain(name, value)}"
                for word, value in (("requested", amount), ("used", before), ("capacity", limit))
            )
            message = f"Node didn't have enough resource: {name}, {facts}"
            return Rejection(f"OutOf{name}", message)
    return None


def _with_pods(amounts: Mapping[str, Quantity]) -> dict[str, Quantity]:
    return {**amounts, PODS: Quantity.from_int(1)}


def _plain(name: str, amount: Quantity) -> int:
    return amount.milli_value() if name == "cpu" else amount.value()


def _other_node(pod: Object, node: Object) -> Rejection | None:
    labels = node["metadata"].get("labels") or {}
    spec = pod["spec"]
    selector = spec.get("nodeSelector") or {}
    terms = (
        ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
            "requiredDuringSchedulingIgnoredDuringExecution"
        )
        or {}
    ).get("nodeSelectorTerms")
    name = str(node["metadata"]["name"])
    fits = all(labels.get(key) == value for key, value in selector.items())
    if fits and (terms is None or any(_matches(term, name, labels) for term in terms)):
        return None
    why = "node(s) didn't match Pod's node affinity/selector"
    return Rejection("NodeAffinity", f"Predicate NodeAffinity failed: {why}")


def _matches(term: Object, name: str, labels: Mapping[str, str]) -> bool:
    on_labels, on_fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not on_labels and not on_fields:
        return False  # as in Kubernetes: an empty term matches nothing
    return all(_holds(each, labels) for each in on_labels) and all(
        _holds(each, {"metadata.name": name}) for each in on_fields
    )


def _holds(expression: Any, values: Mapping[str, str]) -> bool:
    operator = OPERATORS.get(expression["operator"])
    words = tuple(expression.get("values") or ())
    if operator is None or (operator in (">", "<") and len(words) != 1):
        return False
    return Requirement(expression["key"], operator, words).matches(values)


def _not_tolerated(pod: Object, node: Object) -> Rejection | None:
    tolerations = pod["spec"].get("tolerations") or ()
    for taint in (node.get("spec") or {}).get("taints") or ():
        if taint.get("effect") == "NoExecute" and not any(
            _tolerates(each, taint) for each in tolerations
        ):
            what = f"{taint['key']}: {taint.get('value', '')}"
            why = f"node(s) had untolerated taint {{{what}}}"
            return Rejection("TaintToleration", f"Predicate TaintToleration failed: {why}")
    return None


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    key = toleration.get("key") or ""
    if key and key != taint["key"]:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(key) and (toleration.get("value") or "") == (taint.get("value") or "")


def _refused(pod: Object, abilities: Abilities) -> Rejection | None:
    try:
        pod_credentials(pod, abilities)
    except SecurityContextRefused as error:
        return Rejection(REASON, str(error))
    return None

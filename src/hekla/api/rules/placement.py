"""Rules of pod placement: selectors, affinity, tolerations, spreading."""

from __future__ import annotations

from typing import Any, Final

from hekla.api.rules import names
from hekla.api.rules.fields import (
    FieldErrors,
    at_least,
    between,
    duplicate,
    forbidden,
    invalid,
    one_of,
    required,
)
from hekla.units.objects import Object
from hekla.units.selectors import label_key_problem, label_value_problem

EFFECTS: Final = ("NoExecute", "NoSchedule", "PreferNoSchedule")
NODE_OPERATORS: Final = ("DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn")
LABEL_OPERATORS: Final = ("DoesNotExist", "Exists", "In", "NotIn")
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def placement(path: str, spec: Object) -> FieldErrors:
    if spec.get("nodeSelector"):
        yield from names.label_map(f"{path}.nodeSelector", spec["nodeSelector"])
    if spec.get("tolerations"):
        yield from tolerations(f"{path}.tolerations", spec["tolerations"])
    if spec.get("affinity"):
        yield from _affinity(f"{path}.affinity", spec["affinity"])
    if spec.get("topologySpreadConstraints"):
        yield from _spread(f"{path}.topologySpreadConstraints", spec["topologySpreadConstraints"])


def tolerations(path: str, items: list[Object]) -> FieldErrors:
    for index, item in enumerate(items):
        at = f"{path}[{index}]"
        operator = item.get("operator") or "Equal"
        yield from one_of(f"{at}.operator", operator, ("Equal", "Exists"))
        key = item.get("key")
        if key and (why := label_key_problem(key)):
            yield invalid(f"{at}.key", key, why)
        if not key and operator != "Exists":
            yield invalid(f"{at}.operator", operator, "must be Exists when key is empty")
        if operator == "Exists" and item.get("value"):
            yield invalid(f"{at}.operator", item["value"], "value must be empty with Exists")
        if item.get("effect"):
            yield from one_of(f"{at}.effect", item["effect"], EFFECTS)
        if item.get("tolerationSeconds") is not None and item.get("effect") != "NoExecute":
            yield invalid(
                f"{at}.effect", item.get("effect", ""), "must be NoExecute with tolerationSeconds"
            )


def label_selector(path: str, selector: Object | None) -> FieldErrors:
    if not selector:
        return
    yield from names.label_map(f"{path}.matchLabels", selector.get("matchLabels"))
    for index, each in enumerate(selector.get("matchExpressions") or ()):
        at = f"{path}.matchExpressions[{index}]"
        yield from _expression(at, each, LABEL_OPERATORS)
        for number, value in enumerate(each.get("values") or ()):
            if why := label_value_problem(value):
                yield invalid(f"{at}.values[{number}]", value, why)


def _expression(at: str, each: Object, operators: tuple[str, ...]) -> FieldErrors:
    key, operator, values = each.get("key"), each.get("operator"), each.get("values") or ()
    if not key:
        yield required(f"{at}.key")
    elif why := label_key_problem(key):
        yield invalid(f"{at}.key", key, why)
    if operator not in operators:
        yield from one_of(f"{at}.operator", operator, operators)
    elif operator in ("In", "NotIn"):
        if not values:
            yield required(f"{at}.values", f"must be specified with operator {operator}")
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            yield required(f"{at}.values", f"must be one whole number with operator {operator}")
    elif values:
        yield forbidden(f"{at}.values", f"may not be specified with operator {operator}")


def node_selector(path: str, selector: Object) -> FieldErrors:
    terms = selector.get("nodeSelectorTerms")
    if not terms:
        yield required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")
    for index, term in enumerate(terms or ()):
        yield from _node_term(f"{path}.nodeSelectorTerms[{index}]", term)


def _node_term(path: str, term: Object) -> FieldErrors:
    for index, each in enumerate(term.get("matchExpressions") or ()):
        yield from _expression(f"{path}.matchExpressions[{index}]", each, NODE_OPERATORS)
    for index, each in enumerate(term.get("matchFields") or ()):
        at = f"{path}.matchFields[{index}]"
        yield from one_of(f"{at}.key", each.get("key"), ("metadata.name",))
        yield from one_of(f"{at}.operator", each.get("operator"), ("In", "NotIn"))
        if len(each.get("values") or ()) != 1:
            yield required(f"{at}.values", "must be exactly one name")


def _affinity(path: str, affinity: Object) -> FieldErrors:
    node = affinity.get("nodeAffinity")
    if node:
        at = f"{path}.nodeAffinity"
        if node.get(REQUIRED) is not None:
            yield from node_selector(f"{at}.{REQUIRED}", node[REQUIRED])
        for index, each in enumerate(node.get(PREFERRED) or ()):
            where = f"{at}.{PREFERRED}[{index}]"
            yield from between(f"{where}.weight", each.get("weight"), 1, 100)
            yield from _node_term(f"{where}.preference", each.get("preference") or {})
    for name in ("podAffinity", "podAntiAffinity"):
        pods = affinity.get(name)
        if not pods:
            continue
        at = f"{path}.{name}"
        for index, term in enumerate(pods.get(REQUIRED) or ()):
            yield from _pod_term(f"{at}.{REQUIRED}[{index}]", term)
        for index, each in enumerate(pods.get(PREFERRED) or ()):
            where = f"{at}.{PREFERRED}[{index}]"
            yield from between(f"{where}.weight", each.get("weight"), 1, 100)
            yield from _pod_term(f"{where}.podAffinityTerm", each.get("podAffinityTerm") or {})


def _pod_term(path: str, term: Object) -> FieldErrors:
    if not term.get("topologyKey"):
        yield required(f"{path}.topologyKey", "can not be empty")
    elif why := label_key_problem(term["topologyKey"]):
        yield invalid(f"{path}.topologyKey", term["topologyKey"], why)
    yield from label_selector(f"{path}.labelSelector", term.get("labelSelector"))
    yield from label_selector(f"{path}.namespaceSelector", term.get("namespaceSelector"))
    for index, namespace in enumerate(term.get("namespaces") or ()):
        yield from names.checked(f"{path}.namespaces[{index}]", namespace, names.dns_label)


def _spread(path: str, constraints: list[Object]) -> FieldErrors:
    seen: set[tuple[Any, Any]] = set()
    for index, each in enumerate(constraints):
        at = f"{path}[{index}]"
        yield from at_least(f"{at}.maxSkew", each.get("maxSkew"), 1)
        key, mode = each.get("topologyKey"), each.get("whenUnsatisfiable")
        if not key:
            yield required(f"{at}.topologyKey", "can not be empty")
        elif why := label_key_problem(key):
            yield invalid(f"{at}.topologyKey", key, why)
        yield from one_of(f"{at}.whenUnsatisfiable", mode, ("DoNotSchedule", "ScheduleAnyway"))
        if (key, mode) in seen:
            yield duplicate(at, f"{{{key}, {mode}}}")
        seen.add((key, mode))
        if each.get("minDomains") is not None:
            yield from at_least(f"{at}.minDomains", each["minDomains"], 1)
            if mode != "DoNotSchedule":
                yield invalid(
                    f"{at}.minDomains", each["minDomains"], "only works with DoNotSchedule"
                )
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if each.get(name) is not None:
                yield from one_of(f"{at}.{name}", each[name], ("Honor", "Ignore"))
        yield from label_selector(f"{at}.labelSelector", each.get("labelSelector"))

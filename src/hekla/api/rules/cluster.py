"""Rules of the smaller groups: priority classes, budgets, leases, RBAC, storage classes."""

from __future__ import annotations

import re
from typing import Any, Final

from hekla.api import wellknown
from hekla.api.rules import amounts, names
from hekla.api.rules.fields import (
    FieldErrors,
    at_least,
    forbidden,
    invalid,
    one_of,
    required,
    unchanged,
)
from hekla.api.rules.placement import label_selector, tolerations
from hekla.units.objects import Object
from hekla.units.selectors import label_key_problem, label_value_problem

RBAC_GROUP: Final = "rbac.authorization.k8s.io"
_PERCENT: Final = re.compile(r"[0-9]+%", re.ASCII)


def priority_class(obj: Object, old: Object | None) -> FieldErrors:
    name, value = (obj.get("metadata") or {}).get("name") or "", obj.get("value") or 0
    system = {
        wellknown.SYSTEM_CLUSTER_CRITICAL: wellknown.SYSTEM_CRITICAL_PRIORITY,
        wellknown.SYSTEM_NODE_CRITICAL: wellknown.SYSTEM_CRITICAL_PRIORITY + 1000,
    }
    if name in system:
        if value != system[name]:
            yield invalid("value", value, f"must be {system[name]} for {name}")
    elif name.startswith("system-"):
        yield forbidden("metadata.name", "names that start with system- are reserved")
    elif value > wellknown.HIGHEST_USER_PRIORITY:
        yield forbidden("value", f"may not be more than {wellknown.HIGHEST_USER_PRIORITY}")
    if value < -(2**31):
        yield invalid("value", value, "must fit into 32 bits")
    policy = obj.get("preemptionPolicy")
    yield from one_of("preemptionPolicy", policy, ("Never", "PreemptLowerPriority"))
    if old is not None:
        # Pods have copied the value when they were created; a change would contradict them.
        if value != (old.get("value") or 0):
            yield forbidden("value", "may not be changed in an update")
        yield from unchanged("preemptionPolicy", policy, old.get("preemptionPolicy"))


def disruption_budget(obj: Object, old: Object | None) -> FieldErrors:
    spec = obj.get("spec") or {}
    minimum, maximum = spec.get("minAvailable"), spec.get("maxUnavailable")
    if minimum is not None and maximum is not None:
        yield invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")
    for field in ("minAvailable", "maxUnavailable"):
        if spec.get(field) is not None:
            yield from _int_or_percent(f"spec.{field}", spec[field])
    yield from label_selector("spec.selector", spec.get("selector"))
    if spec.get("unhealthyPodEvictionPolicy"):
        policy = spec["unhealthyPodEvictionPolicy"]
        yield from one_of(
            "spec.unhealthyPodEvictionPolicy", policy, ("AlwaysAllow", "IfHealthyBudget")
        )


def _int_or_percent(field: str, value: Any) -> FieldErrors:
    if isinstance(value, str):
        if not _PERCENT.fullmatch(value) or int(value[:-1]) > 100:
            yield invalid(field, value, "must be a number or a percentage up to 100%")
    else:
        yield from at_least(field, value, 0)


def lease(obj: Object, old: Object | None) -> FieldErrors:
    spec = obj.get("spec") or {}
    if spec.get("leaseDurationSeconds") is not None:
        yield from at_least("spec.leaseDurationSeconds", spec["leaseDurationSeconds"], 1)
    if spec.get("leaseTransitions") is not None:
        yield from at_least("spec.leaseTransitions", spec["leaseTransitions"], 0)


# --- access -----------------------------------------------------------------------------------


def role(obj: Object, old: Object | None) -> FieldErrors:
    yield from _rules(obj, cluster_wide=False)


def cluster_role(obj: Object, old: Object | None) -> FieldErrors:
    yield from _rules(obj, cluster_wide=True)
    selectors = (obj.get("aggregationRule") or {}).get("clusterRoleSelectors") or ()
    for index, selector in enumerate(selectors):
        yield from label_selector(f"aggregationRule.clusterRoleSelectors[{index}]", selector)


def _rules(obj: Object, *, cluster_wide: bool) -> FieldErrors:
    for index, rule in enumerate(obj.get("rules") or ()):
        at = f"rules[{index}]"
        if not rule.get("verbs"):
            yield required(f"{at}.verbs", "verbs must contain at least one value")
        urls = rule.get("nonResourceURLs")
        if urls:
            if not cluster_wide:
                yield invalid(f"{at}.nonResourceURLs", urls, "a Role cannot grant access to URLs")
            if any(rule.get(f) for f in ("apiGroups", "resources", "resourceNames")):
                yield invalid(
                    f"{at}.nonResourceURLs", urls, "rules are about resources or URLs, not both"
                )
            continue
        if not rule.get("apiGroups"):
            yield required(f"{at}.apiGroups", 'name a group; "" is the core group')
        if not rule.get("resources"):
            yield required(f"{at}.resources", "name at least one resource")


def role_binding(obj: Object, old: Object | None) -> FieldErrors:
    yield from _binding(obj, old, ("ClusterRole", "Role"), in_namespace=True)


def cluster_role_binding(obj: Object, old: Object | None) -> FieldErrors:
    yield from _binding(obj, old, ("ClusterRole",), in_namespace=False)


_SUBJECT_GROUPS = {"Group": RBAC_GROUP, "ServiceAccount": "", "User": RBAC_GROUP}


def _binding(
    obj: Object, old: Object | None, roles: tuple[str, ...], *, in_namespace: bool
) -> FieldErrors:
    ref = obj.get("roleRef") or {}
    yield from one_of("roleRef.apiGroup", ref.get("apiGroup"), (RBAC_GROUP,))
    yield from one_of("roleRef.kind", ref.get("kind"), roles)
    yield from names.checked("roleRef.name", ref.get("name"), names.path_segment)
    for index, subject in enumerate(obj.get("subjects") or ()):
        at = f"subjects[{index}]"
        kind = subject.get("kind")
        yield from one_of(f"{at}.kind", kind, _SUBJECT_GROUPS)
        if not subject.get("name"):
            yield required(f"{at}.name")
        elif kind == "ServiceAccount":
            yield from names.checked(f"{at}.name", subject["name"], names.dns_subdomain)
        group = _SUBJECT_GROUPS.get(str(kind))
        if group is not None:
            yield from one_of(f"{at}.apiGroup", subject.get("apiGroup") or "", (group,))
        # A RoleBinding's account defaults to its namespace; elsewhere the namespace is required.
        if kind == "ServiceAccount" and not subject.get("namespace") and not in_namespace:
            yield required(f"{at}.namespace")
    if old is not None and ref != (old.get("roleRef") or {}):
        yield invalid(
            "roleRef", ref, "cannot change roleRef; delete the binding and create it again"
        )


# --- storage and the rest ---------------------------------------------------------------------


def storage_class(obj: Object, old: Object | None) -> FieldErrors:
    if not obj.get("provisioner"):
        yield required("provisioner")
    yield from one_of("reclaimPolicy", obj.get("reclaimPolicy"), ("Delete", "Recycle", "Retain"))
    mode = obj.get("volumeBindingMode")
    yield from one_of("volumeBindingMode", mode, ("Immediate", "WaitForFirstConsumer"))
    if old is not None:
        # Volumes of the class have copied these; a change would be misleading.
        for field in ("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"):
            yield from unchanged(field, obj.get(field), old.get(field))


def runtime_class(obj: Object, old: Object | None) -> FieldErrors:
    yield from names.checked("handler", obj.get("handler"), names.dns_label)
    fixed = (obj.get("overhead") or {}).get("podFixed")
    yield from amounts.resource_list("overhead.podFixed", fixed)
    placement = obj.get("scheduling") or {}
    for key, value in (placement.get("nodeSelector") or {}).items():
        if why := label_key_problem(key) or label_value_problem(value):
            yield invalid(f"scheduling.nodeSelector[{key}]", value, why)
    yield from tolerations("scheduling.tolerations", placement.get("tolerations") or [])
    if old is not None:
        yield from unchanged("handler", obj.get("handler"), old.get("handler"))


def endpoint_slice(obj: Object, old: Object | None) -> FieldErrors:
    yield from one_of("addressType", obj.get("addressType"), ("FQDN", "IPv4", "IPv6"))
    if old is not None:
        yield from unchanged("addressType", obj.get("addressType"), old.get("addressType"))


def network_policy(obj: Object, old: Object | None) -> FieldErrors:
    spec = obj.get("spec") or {}
    yield from label_selector("spec.podSelector", spec.get("podSelector"))
    for index, kind in enumerate(spec.get("policyTypes") or ()):
        yield from one_of(f"spec.policyTypes[{index}]", kind, ("Egress", "Ingress"))


def api_service(obj: Object, old: Object | None) -> FieldErrors:
    if (obj.get("spec") or {}).get("service") is not None:
        yield forbidden("spec.service", "aggregation to other servers is not supported")


TABLE = (
    ("apiregistration.k8s.io/v1", "APIService", api_service),
    ("scheduling.k8s.io/v1", "PriorityClass", priority_class),
    ("policy/v1", "PodDisruptionBudget", disruption_budget),
    ("coordination.k8s.io/v1", "Lease", lease),
    (f"{RBAC_GROUP}/v1", "Role", role),
    (f"{RBAC_GROUP}/v1", "ClusterRole", cluster_role),
    (f"{RBAC_GROUP}/v1", "RoleBinding", role_binding),
    (f"{RBAC_GROUP}/v1", "ClusterRoleBinding", cluster_role_binding),
    ("storage.k8s.io/v1", "StorageClass", storage_class),
    ("node.k8s.io/v1", "RuntimeClass", runtime_class),
    ("discovery.k8s.io/v1", "EndpointSlice", endpoint_slice),
    ("networking.k8s.io/v1", "NetworkPolicy", network_policy),
)

"""Defaults of the smaller groups: priority classes, storage, RBAC, network, extensions.

Note: create each default anew for each object; a shared `{}` would tie objects together.
"""

from __future__ import annotations

from hekla.units.objects import Object

RBAC_GROUP = "rbac.authorization.k8s.io"


def priority_class(obj: Object) -> None:
    if not obj.get("preemptionPolicy"):
        obj["preemptionPolicy"] = "PreemptLowerPriority"


def storage_class(obj: Object) -> None:
    if not obj.get("reclaimPolicy"):
        obj["reclaimPolicy"] = "Delete"
    if not obj.get("volumeBindingMode"):
        obj["volumeBindingMode"] = "Immediate"


def csi_driver(obj: Object) -> None:
    spec = obj.get("spec")
    if spec is None:
        return
    for field, default in {
        "attachRequired": True,
        "podInfoOnMount": False,
        "storageCapacity": False,
        "fsGroupPolicy": "ReadWriteOnceWithFSType",
        "requiresRepublish": False,
        "seLinuxMount": False,
    }.items():
        if spec.get(field) is None:
            spec[field] = default
    if not spec.get("volumeLifecycleModes"):
        spec["volumeLifecycleModes"] = ["Persistent"]


def role_binding(obj: Object) -> None:
    ref = obj.get("roleRef")
    if ref is not None and not ref.get("apiGroup"):
        ref["apiGroup"] = RBAC_GROUP
    for subject in obj.get("subjects") or ():
        # ServiceAccounts belong to the core group, whose name is empty.
        if subject.get("kind") in ("User", "Group") and not subject.get("apiGroup"):
            subject["apiGroup"] = RBAC_GROUP


def network_policy(obj: Object) -> None:
    spec = obj.get("spec")
    if spec is None:
        return
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    for rule in (*(spec.get("ingress") or ()), *(spec.get("egress") or ())):
        for port in rule.get("ports") or ():
            if not port.get("protocol"):
                port["protocol"] = "TCP"


def endpoint_slice(obj: Object) -> None:
    for port in obj.get("ports") or ():
        if port.get("name") is None:
            port["name"] = ""
        if not port.get("protocol"):
            port["protocol"] = "TCP"


def custom_resource_definition(obj: Object) -> None:
    spec = obj.get("spec")
    if spec is None:
        return
    names = spec.get("names")
    if names is not None and names.get("kind"):
        if not names.get("singular"):
            names["singular"] = names["kind"].lower()
        if not names.get("listKind"):
            names["listKind"] = f"{names['kind']}List"
    if not spec.get("conversion"):
        spec["conversion"] = {"strategy": "None"}
    webhook = spec["conversion"].get("webhook") or {}
    service = (webhook.get("clientConfig") or {}).get("service")
    if service and service.get("port") is None:
        service["port"] = 443


def validating_webhooks(obj: Object) -> None:
    for webhook in obj.get("webhooks") or ():
        _webhook(webhook)


def mutating_webhooks(obj: Object) -> None:
    for webhook in obj.get("webhooks") or ():
        _webhook(webhook)
        if not webhook.get("reinvocationPolicy"):
            webhook["reinvocationPolicy"] = "Never"


def _webhook(webhook: Object) -> None:
    if not webhook.get("failurePolicy"):
        webhook["failurePolicy"] = "Fail"
    if webhook.get("timeoutSeconds") is None:
        webhook["timeoutSeconds"] = 10
    service = (webhook.get("clientConfig") or {}).get("service")
    if service and service.get("port") is None:
        service["port"] = 443
    _match_resources(webhook, "rules")


def admission_policy(obj: Object) -> None:
    spec = obj.get("spec")
    if spec is None:
        return
    if not spec.get("failurePolicy"):
        spec["failurePolicy"] = "Fail"
    if spec.get("matchConstraints") is not None:
        _match_resources(spec["matchConstraints"], "resourceRules", "excludeResourceRules")


def admission_policy_binding(obj: Object) -> None:
    match = (obj.get("spec") or {}).get("matchResources")
    if match is not None:
        _match_resources(match, "resourceRules", "excludeResourceRules")


def _match_resources(match: Object, *rule_fields: str) -> None:
    if not match.get("matchPolicy"):
        match["matchPolicy"] = "Equivalent"
    for field in ("namespaceSelector", "objectSelector"):
        if match.get(field) is None:
            match[field] = {}
    for field in rule_fields:
        for rule in match.get(field) or ():
            if not rule.get("scope"):
                rule["scope"] = "*"


TABLE = (
    ("scheduling.k8s.io/v1", "PriorityClass", priority_class),
    ("storage.k8s.io/v1", "StorageClass", storage_class),
    ("storage.k8s.io/v1", "CSIDriver", csi_driver),
    (f"{RBAC_GROUP}/v1", "RoleBinding", role_binding),
    (f"{RBAC_GROUP}/v1", "ClusterRoleBinding", role_binding),
    ("networking.k8s.io/v1", "NetworkPolicy", network_policy),
    ("discovery.k8s.io/v1", "EndpointSlice", endpoint_slice),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", custom_resource_definition),
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", validating_webhooks),
    ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", mutating_webhooks),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", admission_policy),
    (
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicyBinding",
        admission_policy_binding,
    ),
)

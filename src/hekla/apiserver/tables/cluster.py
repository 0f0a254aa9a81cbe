"""Columns of storage, network, access, scheduling and extension kinds."""

from __future__ import annotations

from typing import Any

from hekla.apiserver.tables.columns import (
    AGE,
    CREATED_AT,
    NAME,
    Column,
    Printer,
    flag,
    number,
    printer,
    wide,
)
from hekla.apiserver.tables.core import balancer_addresses
from hekla.apiserver.tables.formats import (
    LISTED,
    NONE,
    UNSET,
    age_of,
    is_terminating,
    name_of,
    part,
    quantity_text,
    selector_text,
)
from hekla.units.objects import Object

_STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"
_DEFAULT_CLASS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_ACCESS_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def created_at(obj: Object, now: float) -> list[Any]:
    """Return name and creation time, for kinds without columns upstream."""
    return [name_of(obj), obj["metadata"].get("creationTimestamp")]


# Storage


def _modes(modes: list[str] | None) -> str:
    return ",".join(short for mode, short in _ACCESS_MODES.items() if mode in (modes or ()))


def _class_of(obj: Object) -> str:
    annotations = obj["metadata"].get("annotations") or {}
    # The annotation is older than the field and takes precedence.
    return str(annotations.get(_STORAGE_CLASS) or part(obj, "spec").get("storageClassName") or "")


def _phase(obj: Object) -> str:
    return "Terminating" if is_terminating(obj) else part(obj, "status").get("phase", "")


def _volume(obj: Object, now: float) -> list[Any]:
    spec = part(obj, "spec")
    claim = spec.get("claimRef")
    return [
        name_of(obj),
        quantity_text(part(spec, "capacity").get("storage")),
        _modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        _phase(obj),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        _class_of(obj),
        spec.get("volumeAttributesClassName") or UNSET,
        part(obj, "status").get("reason", ""),
        age_of(obj, now),
        spec.get("volumeMode") or UNSET,
    ]


def _claim(obj: Object, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    bound = bool(spec.get("volumeName"))
    return [
        name_of(obj),
        _phase(obj),
        spec.get("volumeName", ""),
        quantity_text(part(status, "capacity").get("storage")) if bound else "",
        _modes(status.get("accessModes")) if bound else "",
        _class_of(obj),
        spec.get("volumeAttributesClassName") or UNSET,
        age_of(obj, now),
        spec.get("volumeMode") or UNSET,
    ]


def _storage_class(obj: Object, now: float) -> list[Any]:
    annotations = obj["metadata"].get("annotations") or {}
    is_default = any(annotations.get(key) == "true" for key in _DEFAULT_CLASS)
    return [
        name_of(obj) + (" (default)" if is_default else ""),
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy") or "Delete",
        obj.get("volumeBindingMode") or "Immediate",
        bool(obj.get("allowVolumeExpansion")),
        age_of(obj, now),
    ]


def _csi_node(obj: Object, now: float) -> list[Any]:
    return [name_of(obj), len(part(obj, "spec").get("drivers") or ()), age_of(obj, now)]


def _csi_driver(obj: Object, now: float) -> list[Any]:
    spec = part(obj, "spec")
    tokens = spec.get("tokenRequests")
    return [
        name_of(obj),
        spec.get("attachRequired", True),
        bool(spec.get("podInfoOnMount")),
        bool(spec.get("storageCapacity")),
        UNSET if tokens is None else ",".join(token.get("audience", "") for token in tokens),
        bool(spec.get("requiresRepublish")),
        ",".join(spec.get("volumeLifecycleModes") or ()) or NONE,
        age_of(obj, now),
    ]


def _storage_capacity(obj: Object, now: float) -> list[Any]:
    capacity = obj.get("capacity")
    shown = UNSET if capacity is None else quantity_text(capacity)
    return [name_of(obj), obj.get("storageClassName", ""), shown]


def _attachment(obj: Object, now: float) -> list[Any]:
    spec = part(obj, "spec")
    return [
        name_of(obj),
        spec.get("attacher", ""),
        part(spec, "source").get("persistentVolumeName") or "",
        spec.get("nodeName", ""),
        bool(part(obj, "status").get("attached")),
        age_of(obj, now),
    ]


# Network


def _network_policy(obj: Object, now: float) -> list[Any]:
    return [name_of(obj), selector_text(part(obj, "spec").get("podSelector")), age_of(obj, now)]


def _ingress_hosts(rules: list[Object]) -> str:
    hosts = [rule["host"] for rule in rules if rule.get("host")]
    text = ",".join(hosts[:LISTED]) or "*"
    # Rules without a host count as not shown, as upstream.
    return f"{text} + {len(rules) - LISTED} more..." if len(hosts) > LISTED else text


def _ingress(obj: Object, now: float) -> list[Any]:
    spec = part(obj, "spec")
    points = part(obj, "status", "loadBalancer").get("ingress")
    return [
        name_of(obj),
        spec.get("ingressClassName") or NONE,
        _ingress_hosts(spec.get("rules") or []),
        ",".join(balancer_addresses(points)),
        "80, 443" if spec.get("tls") else "80",
        age_of(obj, now),
    ]


# Access


def _binding(obj: Object, now: float) -> list[Any]:
    role = part(obj, "roleRef")
    subjects = obj.get("subjects") or []
    names: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in subjects:
        name = subject.get("name", "")
        if subject.get("kind") == "ServiceAccount":
            name = f"{subject.get('namespace', '')}/{name}"
        names.setdefault(subject.get("kind", ""), []).append(name)
    return [
        name_of(obj),
        f"{role.get('kind', '')}/{role.get('name', '')}",
        age_of(obj, now),
        *(", ".join(names[kind]) for kind in ("User", "Group", "ServiceAccount")),
    ]


# Scheduling and coordination


def _priority_class(obj: Object, now: float) -> list[Any]:
    return [
        name_of(obj),
        obj.get("value", 0),
        bool(obj.get("globalDefault")),
        age_of(obj, now),
        obj.get("preemptionPolicy", ""),
    ]


def _lease(obj: Object, now: float) -> list[Any]:
    return [name_of(obj), part(obj, "spec").get("holderIdentity") or "", age_of(obj, now)]


def _runtime_class(obj: Object, now: float) -> list[Any]:
    return [name_of(obj), obj.get("handler", ""), age_of(obj, now)]


# Extension


def _webhooks(obj: Object, now: float) -> list[Any]:
    return [name_of(obj), len(obj.get("webhooks") or ()), age_of(obj, now)]


def _admission_policy(obj: Object, now: float) -> list[Any]:
    spec = part(obj, "spec")
    kind = spec.get("paramKind")
    shown = f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}" if kind else UNSET
    return [name_of(obj), len(spec.get("validations") or ()), shown, age_of(obj, now)]


def _admission_binding(obj: Object, now: float) -> list[Any]:
    spec = part(obj, "spec")
    reference = part(spec, "paramRef")
    shown = UNSET
    if reference.get("name"):
        shown = f"{reference.get('namespace') or '*'}/{reference['name']}"
    elif reference.get("selector") is not None:
        shown = selector_text(reference["selector"])
    return [name_of(obj), spec.get("policyName", ""), shown, age_of(obj, now)]


def _signing_request(obj: Object, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    said = [item.get("type", "") for item in status.get("conditions") or ()] or ["Pending"]
    if status.get("certificate"):
        said.append("Issued")
    return [
        name_of(obj),
        age_of(obj, now),
        spec.get("signerName", ""),
        spec.get("username", ""),
        ",".join(said),
    ]


_AGED = printer((NAME, AGE), lambda obj, now: [name_of(obj), age_of(obj, now)])
_CREATED = printer((NAME, CREATED_AT), created_at)
_BINDINGS = printer(
    (
        NAME,
        Column("Role", "The bound role."),
        AGE,
        wide("Users", "Bound users."),
        wide("Groups", "Bound groups."),
        wide("ServiceAccounts", "Bound service accounts."),
    ),
    _binding,
)
_WEBHOOKS = printer((NAME, number("Webhooks", "Number of webhooks."), AGE), _webhooks)
_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"

CLUSTER: dict[str, Printer] = {
    "limitranges": _CREATED,
    f"{_RBAC}/roles": _CREATED,
    f"{_RBAC}/clusterroles": _CREATED,
    f"{_RBAC}/rolebindings": _BINDINGS,
    f"{_RBAC}/clusterrolebindings": _BINDINGS,
    "apiextensions.k8s.io/customresourcedefinitions": _CREATED,
    "persistentvolumes": printer(
        (
            NAME,
            Column("Capacity", "Capacity."),
            Column("Access Modes", "Access modes, abbreviated."),
            Column("Reclaim Policy", "What happens to it when its claim is deleted."),
            Column("Status", "Available, Bound, Released or Failed."),
            Column("Claim", "The bound claim."),
            Column("StorageClass", "Its storage class."),
            Column("VolumeAttributesClass", "Its VolumeAttributesClass."),
            Column("Reason", "Why it is in that status."),
            AGE,
            wide("VolumeMode", "Filesystem or Block."),
        ),
        _volume,
    ),
    "persistentvolumeclaims": printer(
        (
            NAME,
            Column("Status", "Pending, Bound or Lost."),
            Column("Volume", "The bound volume."),
            Column("Capacity", "Capacity of the volume."),
            Column("Access Modes", "Access modes, abbreviated."),
            Column("StorageClass", "The requested storage class."),
            Column("VolumeAttributesClass", "The requested VolumeAttributesClass."),
            AGE,
            wide("VolumeMode", "Filesystem or Block."),
        ),
        _claim,
    ),
    "storage.k8s.io/storageclasses": printer(
        (
            NAME,
            Column("Provisioner", "The provisioner of volumes."),
            Column("ReclaimPolicy", "What happens to a volume when its claim is deleted."),
            Column("VolumeBindingMode", "When a volume is provisioned and bound."),
            Column("AllowVolumeExpansion", "Whether volumes can be expanded."),
            AGE,
        ),
        _storage_class,
    ),
    "storage.k8s.io/csinodes": printer(
        (NAME, number("Drivers", "Storage drivers on the node."), AGE), _csi_node
    ),
    "storage.k8s.io/csidrivers": printer(
        (
            NAME,
            flag("AttachRequired", "Whether volumes are attached before they are mounted."),
            flag("PodInfoOnMount", "Whether the driver gets information about the pod."),
            flag("StorageCapacity", "Whether the driver reports free capacity."),
            Column("TokenRequests", "Audiences of the tokens the driver gets."),
            flag("RequiresRepublish", "Whether the driver is called periodically."),
            Column("Modes", "Supported volume lifecycles."),
            AGE,
        ),
        _csi_driver,
    ),
    "storage.k8s.io/csistoragecapacities": printer(
        (
            NAME,
            Column("StorageClassName", "The storage class."),
            Column("Capacity", "Free capacity."),
        ),
        _storage_capacity,
    ),
    "storage.k8s.io/volumeattachments": printer(
        (
            NAME,
            Column("Attacher", "The driver that attaches it.", format="name"),
            Column("PV", "The volume."),
            Column("Node", "The node it is attached to."),
            flag("Attached", "Whether it is attached."),
            AGE,
        ),
        _attachment,
    ),
    "networking.k8s.io/networkpolicies": printer(
        (NAME, Column("Pod-Selector", "Labels of the selected pods."), AGE), _network_policy
    ),
    "networking.k8s.io/ingresses": printer(
        (
            NAME,
            Column("Class", "The ingress class."),
            Column("Hosts", "Host names."),
            Column("Address", "Addresses."),
            Column("Ports", "80, and 443 with TLS."),
            AGE,
        ),
        _ingress,
    ),
    "scheduling.k8s.io/priorityclasses": printer(
        (
            NAME,
            number("Value", "The priority of its pods; higher values come first."),
            flag("Global-Default", "Whether pods that name no class get this one."),
            AGE,
            Column("PreemptionPolicy", "Whether its pods may preempt others."),
        ),
        _priority_class,
    ),
    "coordination.k8s.io/leases": printer(
        (NAME, Column("Holder", "The current holder."), AGE), _lease
    ),
    "node.k8s.io/runtimeclasses": printer(
        (NAME, Column("Handler", "The runtime's name for this configuration."), AGE),
        _runtime_class,
    ),
    "apiregistration.k8s.io/apiservices": printer(
        (NAME, Column("Service", "The service that serves it."), AGE),
        lambda obj, now: [name_of(obj), "Local", age_of(obj, now)],
    ),
    "certificates.k8s.io/certificatesigningrequests": printer(
        (
            NAME,
            AGE,
            Column("SignerName", "The requested signer."),
            Column("Requestor", "The requesting user."),
            Column("Condition", "Approved, Denied, Issued, Failed or Pending."),
        ),
        _signing_request,
    ),
    "flowcontrol.apiserver.k8s.io/flowschemas": _AGED,
    "flowcontrol.apiserver.k8s.io/prioritylevelconfigurations": _AGED,
    "resource.k8s.io/deviceclasses": _AGED,
    "resource.k8s.io/resourceclaims": _AGED,
    "resource.k8s.io/resourceclaimtemplates": _AGED,
    "resource.k8s.io/resourceslices": _AGED,
    f"{_ADMISSION}/mutatingwebhookconfigurations": _WEBHOOKS,
    f"{_ADMISSION}/validatingwebhookconfigurations": _WEBHOOKS,
    f"{_ADMISSION}/validatingadmissionpolicies": printer(
        (
            NAME,
            number("ValidationRules", "Number of validations."),
            Column("ParamKind", "Kind of the parameters."),
            AGE,
        ),
        _admission_policy,
    ),
    f"{_ADMISSION}/validatingadmissionpolicybindings": printer(
        (
            NAME,
            Column("PolicyName", "The bound policy."),
            Column("ParamRef", "Reference to the parameters."),
            AGE,
        ),
        _admission_binding,
    ),
}

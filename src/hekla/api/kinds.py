"""The table of all built-in kinds of the embedded API server.

Discovery, routing, RBAC resource names and `kubectl get` tables use it. Custom kinds (Volcano's,
and those that a client installs) come from CustomResourceDefinitions; `from_crd` converts one.

Note: a *kind* (`Pod`) and a *resource* (`pods`) name the same type, and neither is unique across
groups (`Event` and `Job` exist twice). Look up a URL by (group, version, plural), and an object by
(apiVersion, kind).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
# Kubernetes has no deletecollection of namespaces.
NO_COLLECTION_DELETE = ("create", "delete", "get", "list", "patch", "update", "watch")
CREATE_ONLY = ("create",)
STATUS_VERBS = ("get", "patch", "update")


@dataclass(frozen=True, slots=True)
class Kind:
    """A served kind: all its names, and its verbs."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    namespaced: bool = True
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    virtual: bool = False
    """A review that is answered in the response's status and not stored."""

    @property
    def api_version(self) -> str:
        """`v1` for the core group, else `group/version`, as in objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def list_kind(self) -> str:
        """The kind of its list, such as `PodList`."""
        return f"{self.kind}List"

    @property
    def path_prefix(self) -> str:
        """The path of its group-version: `/api/v1` or `/apis/apps/v1`."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def group_resource(self) -> str:
        """`pods`, `deployments.apps`: the name in RBAC messages and Status details."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of the collection, of an object, or of a subresource.

        >>> by_resource("", "v1", "pods").path("default", "a", "log")
        '/api/v1/namespaces/default/pods/a/log'
        """
        path = self.path_prefix
        if namespace and self.namespaced:
            path += f"/namespaces/{namespace}"
        path += f"/{self.plural}"
        if name:
            path += f"/{name}"
        if subresource:
            path += f"/{subresource}"
        return path


@dataclass(frozen=True, slots=True)
class Subresource:
    """The type of a subresource, often not its parent's: `pods/eviction` takes an Eviction."""

    name: str
    group: str
    version: str
    kind: str
    verbs: tuple[str, ...]

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


def _core(kind: str, plural: str, *short: str, **more: Any) -> Kind:
    return _kind("", kind, plural, *short, **more)


def _kind(group: str, kind: str, plural: str, *short: str, **more: Any) -> Kind:
    return Kind(group, "v1", kind, plural, kind.lower(), short, **more)


_ALL = ("all",)
_API_EXTENSIONS = ("api-extensions",)
_STATUS = ("status",)
_STATUS_SCALE = ("status", "scale")
_ADMISSION = "admissionregistration.k8s.io"
_AUTHN = "authentication.k8s.io"
_AUTHZ = "authorization.k8s.io"
_CERTIFICATES = "certificates.k8s.io"
_FLOW = "flowcontrol.apiserver.k8s.io"
_NETWORK = "networking.k8s.io"
_RBAC = "rbac.authorization.k8s.io"
_RESOURCE = "resource.k8s.io"
_STORAGE = "storage.k8s.io"
_POD_SUBRESOURCES = (
    "status",
    "binding",
    "eviction",
    "log",
    "exec",
    "attach",
    "portforward",
    "ephemeralcontainers",
)


BUILTIN: tuple[Kind, ...] = (
    # core
    _core(
        "Namespace",
        "namespaces",
        "ns",
        namespaced=False,
        subresources=("status", "finalize"),
        verbs=NO_COLLECTION_DELETE,
    ),
    _core("Node", "nodes", "no", namespaced=False, subresources=_STATUS),
    _core("Pod", "pods", "po", categories=_ALL, subresources=_POD_SUBRESOURCES),
    _core("Service", "services", "svc", categories=_ALL, subresources=_STATUS),
    _core("Endpoints", "endpoints", "ep"),
    _core("ConfigMap", "configmaps", "cm"),
    _core("Secret", "secrets"),
    _core("ServiceAccount", "serviceaccounts", "sa", subresources=("token",)),
    _core("Event", "events", "ev"),
    _core("PersistentVolumeClaim", "persistentvolumeclaims", "pvc", subresources=_STATUS),
    _core("PersistentVolume", "persistentvolumes", "pv", namespaced=False, subresources=_STATUS),
    _core("ResourceQuota", "resourcequotas", "quota", subresources=_STATUS),
    _core("LimitRange", "limitranges", "limits"),
    _core("PodTemplate", "podtemplates"),
    _core(
        "ReplicationController",
        "replicationcontrollers",
        "rc",
        categories=_ALL,
        subresources=_STATUS_SCALE,
    ),
    # workloads
    _kind(
        "apps",
        "Deployment",
        "deployments",
        "deploy",
        categories=_ALL,
        subresources=_STATUS_SCALE,
    ),
    _kind("apps", "ReplicaSet", "replicasets", "rs", categories=_ALL, subresources=_STATUS_SCALE),
    _kind(
        "apps", "StatefulSet", "statefulsets", "sts", categories=_ALL, subresources=_STATUS_SCALE
    ),
    _kind("apps", "DaemonSet", "daemonsets", "ds", categories=_ALL, subresources=_STATUS),
    _kind("apps", "ControllerRevision", "controllerrevisions"),
    _kind("batch", "Job", "jobs", categories=_ALL, subresources=_STATUS),
    _kind("batch", "CronJob", "cronjobs", "cj", categories=_ALL, subresources=_STATUS),
    # coordination and scheduling
    _kind("events.k8s.io", "Event", "events", "ev"),
    _kind("coordination.k8s.io", "Lease", "leases"),
    _kind("scheduling.k8s.io", "PriorityClass", "priorityclasses", "pc", namespaced=False),
    _kind("policy", "PodDisruptionBudget", "poddisruptionbudgets", "pdb", subresources=_STATUS),
    # RBAC
    _kind(_RBAC, "Role", "roles"),
    _kind(_RBAC, "RoleBinding", "rolebindings"),
    _kind(_RBAC, "ClusterRole", "clusterroles", namespaced=False),
    _kind(_RBAC, "ClusterRoleBinding", "clusterrolebindings", namespaced=False),
    # extensions
    _kind(
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        "crd",
        "crds",
        categories=_API_EXTENSIONS,
        namespaced=False,
        subresources=_STATUS,
    ),
    _kind(
        _ADMISSION,
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        categories=_API_EXTENSIONS,
        namespaced=False,
    ),
    _kind(
        _ADMISSION,
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        categories=_API_EXTENSIONS,
        namespaced=False,
    ),
    _kind(
        _ADMISSION,
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        categories=_API_EXTENSIONS,
        namespaced=False,
        subresources=_STATUS,
    ),
    _kind(
        _ADMISSION,
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        categories=_API_EXTENSIONS,
        namespaced=False,
    ),
    # storage
    _kind(_STORAGE, "StorageClass", "storageclasses", "sc", namespaced=False),
    _kind(_STORAGE, "CSINode", "csinodes", namespaced=False),
    _kind(_STORAGE, "CSIDriver", "csidrivers", namespaced=False),
    _kind(_STORAGE, "CSIStorageCapacity", "csistoragecapacities"),
    _kind(
        _STORAGE,
        "VolumeAttachment",
        "volumeattachments",
        namespaced=False,
        subresources=_STATUS,
    ),
    # network
    _kind(_NETWORK, "NetworkPolicy", "networkpolicies", "netpol"),
    _kind(_NETWORK, "Ingress", "ingresses", "ing", subresources=_STATUS),
    _kind("discovery.k8s.io", "EndpointSlice", "endpointslices"),
    _kind("node.k8s.io", "RuntimeClass", "runtimeclasses", namespaced=False),
    # stored for clients that expect them; no controller acts on them
    _kind(
        "apiregistration.k8s.io",
        "APIService",
        "apiservices",
        categories=_API_EXTENSIONS,
        namespaced=False,
        subresources=_STATUS,
    ),
    _kind(
        _CERTIFICATES,
        "CertificateSigningRequest",
        "certificatesigningrequests",
        "csr",
        namespaced=False,
        subresources=("status", "approval"),
    ),
    _kind(_FLOW, "FlowSchema", "flowschemas", namespaced=False, subresources=_STATUS),
    _kind(
        _FLOW,
        "PriorityLevelConfiguration",
        "prioritylevelconfigurations",
        namespaced=False,
        subresources=_STATUS,
    ),
    _kind(_RESOURCE, "DeviceClass", "deviceclasses", namespaced=False),
    _kind(_RESOURCE, "ResourceClaim", "resourceclaims", subresources=_STATUS),
    _kind(_RESOURCE, "ResourceClaimTemplate", "resourceclaimtemplates"),
    _kind(_RESOURCE, "ResourceSlice", "resourceslices", namespaced=False),
    # reviews
    _kind(
        _AUTHZ,
        "SelfSubjectAccessReview",
        "selfsubjectaccessreviews",
        namespaced=False,
        verbs=CREATE_ONLY,
        virtual=True,
    ),
    _kind(
        _AUTHZ,
        "SelfSubjectRulesReview",
        "selfsubjectrulesreviews",
        namespaced=False,
        verbs=CREATE_ONLY,
        virtual=True,
    ),
    _kind(
        _AUTHZ,
        "SubjectAccessReview",
        "subjectaccessreviews",
        namespaced=False,
        verbs=CREATE_ONLY,
        virtual=True,
    ),
    _kind(
        _AUTHZ,
        "LocalSubjectAccessReview",
        "localsubjectaccessreviews",
        verbs=CREATE_ONLY,
        virtual=True,
    ),
    _kind(
        _AUTHN,
        "TokenReview",
        "tokenreviews",
        namespaced=False,
        verbs=CREATE_ONLY,
        virtual=True,
    ),
    _kind(
        _AUTHN,
        "SelfSubjectReview",
        "selfsubjectreviews",
        namespaced=False,
        verbs=CREATE_ONLY,
        virtual=True,
    ),
)

# Types of subresources and requests, which are not resources.
SCALE_API_VERSION = "autoscaling/v1"
SCALE_KIND = "Scale"

_BY_RESOURCE: Mapping[tuple[str, str, str], Kind] = MappingProxyType(
    {(k.group, k.version, k.plural): k for k in BUILTIN}
)
_BY_KIND: Mapping[tuple[str, str], Kind] = MappingProxyType(
    {(k.api_version, k.kind): k for k in BUILTIN}
)

# name -> (group, version, kind, verbs) of subresources with another type than their parent
_SUBRESOURCES: Mapping[str, tuple[str, str, str, tuple[str, ...]]] = MappingProxyType(
    {
        "binding": ("", "v1", "Binding", CREATE_ONLY),
        "eviction": ("policy", "v1", "Eviction", CREATE_ONLY),
        "token": ("authentication.k8s.io", "v1", "TokenRequest", CREATE_ONLY),
        "scale": ("autoscaling", "v1", "Scale", STATUS_VERBS),
        "exec": ("", "v1", "PodExecOptions", ("create", "get")),
        "attach": ("", "v1", "PodAttachOptions", ("create", "get")),
        "portforward": ("", "v1", "PodPortForwardOptions", ("create", "get")),
    }
)
_OWN_KIND_VERBS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"log": ("get",), "finalize": ("update",)}
)


def by_resource(group: str, version: str, plural: str) -> Kind | None:
    """Return the kind of a group, version and plural, as in a URL."""
    return _BY_RESOURCE.get((group, version, plural))


def by_kind(api_version: str, kind: str) -> Kind | None:
    """Return the kind of an `apiVersion` and `kind`, as in an object."""
    return _BY_KIND.get((api_version, kind))


def subresource(kind: Kind, name: str) -> Subresource:
    """Return the type and verbs of a subresource; raise ValueError if there is none."""
    if name not in kind.subresources:
        known = ", ".join(kind.subresources) or "none"
        raise ValueError(f"{kind.group_resource} has no subresource {name!r}; it has: {known}")
    if name in _SUBRESOURCES:
        group, version, exchanged, verbs = _SUBRESOURCES[name]
        return Subresource(name, group, version, exchanged, verbs)
    verbs = _OWN_KIND_VERBS.get(name, STATUS_VERBS)
    return Subresource(name, kind.group, kind.version, kind.kind, verbs)


def from_crd(crd: Mapping[str, Any], version: str) -> Kind:
    """Return the Kind of a CustomResourceDefinition at one of its versions."""
    spec = crd["spec"]
    names = spec["names"]
    shown = next((v for v in spec["versions"] if v["name"] == version), None)
    if shown is None:
        offered = ", ".join(v["name"] for v in spec["versions"])
        raise ValueError(
            f"CustomResourceDefinition {crd['metadata']['name']!r} has no version {version!r}; "
            f"it has: {offered}"
        )
    offered_subresources = shown.get("subresources") or {}
    return Kind(
        group=spec["group"],
        version=version,
        kind=names["kind"],
        plural=names["plural"],
        singular=names.get("singular") or names["kind"].lower(),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        namespaced=spec.get("scope") == "Namespaced",
        subresources=tuple(s for s in ("status", "scale") if s in offered_subresources),
    )

"""Every built-in kind of the embedded API server, as data.

Discovery, routing, RBAC resource names and `kubectl get` tables all read this one table. Custom
kinds (Volcano's, and those a client installs) are not here: they come from
CustomResourceDefinitions, and `from_crd` turns one into the same shape.

What a newcomer gets wrong: a *kind* (`Pod`) and a *resource* (`pods`) are two names of one thing,
and neither is unique across groups (`Event` and `Job` exist twice). Look up by (group, version,
plural) when you hold a URL, and by (apiVersion, kind) when you hold an object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
# Namespaces have no deletecollection upstream, on purpose: too much would vanish at one call.
NO_COLLECTION_DELETE = ("create", "delete", "get", "list", "patch", "update", "watch")
CREATE_ONLY = ("create",)
STATUS_VERBS = ("get", "patch", "update")


@dataclass(frozen=True, slots=True)
class Kind:
    """One served kind: its names in every form a client may ask by, and what may be done to it."""

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
    """A question, not an object: POST answers in the reply's status and nothing is stored."""

    @property
    def api_version(self) -> str:
        """`v1` for the core group, `group/version` otherwise; as written in objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def list_kind(self) -> str:
        """The kind of a list of these, e.g. `PodList`."""
        return f"{self.kind}List"

    @property
    def path_prefix(self) -> str:
        """Where its group-version is served: `/api/v1` or `/apis/apps/v1`."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def group_resource(self) -> str:
        """`pods`, `deployments.apps`: the name used in RBAC messages and Status details."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of the collection, of one object, or of one of its subresources.

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
    """What a subresource exchanges, often not its parent: `pods/eviction` takes an Eviction."""

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
    # access
    _kind(_RBAC, "Role", "roles"),
    _kind(_RBAC, "RoleBinding", "rolebindings"),
    _kind(_RBAC, "ClusterRole", "clusterroles", namespaced=False),
    _kind(_RBAC, "ClusterRoleBinding", "clusterrolebindings", namespaced=False),
    # extension
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
    # kept for clients that expect them; nothing here acts on them
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
    # questions asked by POST
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

# Exchanged by subresources and clients, never listed as a resource of their own.
SCALE_API_VERSION = "autoscaling/v1"
SCALE_KIND = "Scale"

_BY_RESOURCE: Mapping[tuple[str, str, str], Kind] = MappingProxyType(
    {(k.group, k.version, k.plural): k for k in BUILTIN}
)
_BY_KIND: Mapping[tuple[str, str], Kind] = MappingProxyType(
    {(k.api_version, k.kind): k for k in BUILTIN}
)

# name -> (group, version, kind, verbs) where a subresource exchanges something else than its parent
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
    """The kind served under that group, version and plural, as a URL names it."""
    return _BY_RESOURCE.get((group, version, plural))


def by_kind(api_version: str, kind: str) -> Kind | None:
    """The kind with that `apiVersion` and `kind`, as an object names it."""
    return _BY_KIND.get((api_version, kind))


def subresource(kind: Kind, name: str) -> Subresource:
    """What `kind`'s subresource `name` exchanges and which verbs it takes; ValueError if none."""
    if name not in kind.subresources:
        known = ", ".join(kind.subresources) or "none"
        raise ValueError(f"{kind.group_resource} has no subresource {name!r}; it has: {known}")
    if name in _SUBRESOURCES:
        group, version, exchanged, verbs = _SUBRESOURCES[name]
        return Subresource(name, group, version, exchanged, verbs)
    verbs = _OWN_KIND_VERBS.get(name, STATUS_VERBS)
    return Subresource(name, kind.group, kind.version, kind.kind, verbs)


def from_crd(crd: Mapping[str, Any], version: str) -> Kind:
    """The Kind that a CustomResourceDefinition object serves at one of its versions."""
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

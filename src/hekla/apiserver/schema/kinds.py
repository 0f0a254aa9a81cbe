"""Served kinds, built-in and custom.

A `Served` is one kind at one version, with everything a generic handler needs. Built-in kinds come
from `hekla.api.kinds`; custom ones from CustomResourceDefinitions, added and removed at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec

from hekla.api import history, kinds, schemas
from hekla.api.kinds import Kind
from hekla.apiserver.schema import versions
from hekla.apiserver.schema.structural import StructuralSchema
from hekla.apiserver.schema.validation_rules import ValidationRules
from hekla.apiserver.storage.selection import SELECTABLE, Fields
from hekla.units.shapes import OBJECT_META, Definitions, Shape

Converter = Callable[[dict[str, Any]], dict[str, Any]]

# Built-in kinds with metadata.generation, as upstream.
_GENERATION = frozenset(
    {
        "CronJob",
        "CustomResourceDefinition",
        "DaemonSet",
        "Deployment",
        "DeviceClass",
        "EndpointSlice",
        "FlowSchema",
        "Ingress",
        "Job",
        "MutatingWebhookConfiguration",
        "NetworkPolicy",
        "Pod",
        "PodDisruptionBudget",
        "PodTemplate",
        "PriorityClass",
        "PriorityLevelConfiguration",
        "ReplicaSet",
        "ReplicationController",
        "ResourceSlice",
        "StatefulSet",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
    }
)
_RETURN_DELETED = frozenset(
    {
        "Namespace",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "Pod",
        "PodTemplate",
        "ResourceQuota",
        "Service",
        "ServiceAccount",
    }
)
_DEPRECATED = {
    ("v1", "Endpoints"): (
        "v1 Endpoints is deprecated since Kubernetes 1.33; use discovery.k8s.io/v1 EndpointSlice"
    ),
}
# Kinds that a PUT may create.
_CREATE_ON_UPDATE = frozenset(
    {
        "ClusterRole",
        "ClusterRoleBinding",
        "Endpoints",
        "EndpointSlice",
        "Event",
        "Lease",
        "LimitRange",
        "Role",
        "RoleBinding",
        "Service",
    }
)


@dataclass(frozen=True)
class ScalePaths:
    """Paths of replicas and selector of a scalable kind, without the leading dot."""

    spec_replicas: str = "spec.replicas"
    status_replicas: str = "status.replicas"
    selector: str = ""


@dataclass
class Served:
    """One kind at one version."""

    kind: Kind
    storage: str
    """Name of its table in the store, shared by all versions of the kind."""
    custom: bool = False
    has_status: bool = False
    scale: ScalePaths | None = None
    fields: Fields = field(default_factory=Fields)
    columns: list[dict[str, Any]] = field(default_factory=list)
    schema: dict[str, Any] = field(default_factory=dict)
    to_storage: Converter | None = None
    from_storage: Converter | None = None
    deprecation: str = ""
    is_stored: bool = True
    """Whether this is the storage version."""
    webhook: dict[str, Any] | None = None
    """Conversion webhook of a custom kind, if versions differ in more than apiVersion."""
    converted: dict[bytes, bytes] | None = None
    """In the copy for one request: stored bytes to bytes converted by the webhook."""
    _structure: StructuralSchema | None = None
    _shape: Shape | None = None
    _validations: ValidationRules | None = None
    _has_read_validations: bool = False

    @property
    def validations(self) -> ValidationRules | None:
        """The CEL rules of a custom kind's schema, if any."""
        if not self._has_read_validations:
            self._has_read_validations = True
            self._validations = ValidationRules.read(self.schema) if self.custom else None
        return self._validations

    @property
    def structural_schema(self) -> StructuralSchema:
        """The schema, compiled on first use: most kinds are never written."""
        if self._structure is None:
            definitions = {} if self.custom else schemas.definitions()
            self._structure = StructuralSchema(self.schema, definitions, custom=self.custom)
        return self._structure

    @property
    def shape(self) -> Shape:
        if self._shape is None:
            if self.custom:
                shape = Shape.from_schema(self.schema).with_field("metadata", OBJECT_META)
            else:
                shape = Shape.from_schema(self.schema, _definitions())
            self._shape = shape
        return self._shape

    @property
    def has_generation(self) -> bool:
        return self.custom or self.kind.kind in _GENERATION

    @property
    def returns_deleted(self) -> bool:
        """Whether a deletion returns the object instead of a Status, as upstream."""
        return not self.custom and (
            self.kind.kind in _RETURN_DELETED
            or self.kind.group in ("resource.k8s.io", "storage.k8s.io")
        )

    @property
    def needs_version(self) -> bool:
        """Whether a PUT must have a resourceVersion."""
        return self.custom or self.kind.kind in ("Lease", "PodDisruptionBudget")

    @property
    def may_create_on_update(self) -> bool:
        return not self.custom and self.kind.kind in _CREATE_ON_UPDATE

    def key(self, namespace: str, name: str) -> str:
        return f"{namespace}/{name}" if self.kind.namespaced else name

    def serve(self, body: bytes) -> bytes:
        """Return stored bytes in this version; the same object if no conversion is needed."""
        if self.converted is not None:
            return self.converted.get(body, body)
        if self.from_storage is None:
            return body
        return msgspec.json.encode(self.from_storage(msgspec.json.decode(body)))


@cache
def _definitions() -> Definitions:
    """Return the definitions of all built-in kinds, so that shared types are resolved once."""
    return Definitions(schemas.definitions())


def _storage_name(group: str, plural: str) -> str:
    return f"{group}/{plural}" if group else plural


def _builtin(kind: Kind) -> Served:
    storage = _storage_name(kind.group, kind.plural)
    served = Served(
        kind=kind,
        storage=storage,
        has_status="status" in kind.subresources,
        scale=ScalePaths() if "scale" in kind.subresources else None,
        fields=Fields(SELECTABLE.get(storage, ())),
        schema={} if kind.virtual else schemas.schema_for(kind.api_version, kind.kind),
        deprecation=_DEPRECATED.get((kind.api_version, kind.kind), ""),
    )
    if storage == "events.k8s.io/events":
        # One table, two groups: an Event written through either is read through both.
        served.storage = "events"
        served.is_stored = False
        served.to_storage = versions.event_to_core
        served.from_storage = versions.event_from_core
    return served


def from_crd(crd: dict[str, Any]) -> list[Served]:
    """Return the served versions of a CustomResourceDefinition."""
    spec = crd["spec"]
    names = spec["names"]
    storage_version = next(v["name"] for v in spec["versions"] if v.get("storage"))
    made = []
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        subresources = version.get("subresources") or {}
        scale = subresources.get("scale")
        kind = kinds.from_crd(crd, version["name"])
        selectable = version.get("selectableFields") or ()
        served = Served(
            kind=kind,
            storage=_storage_name(spec["group"], names["plural"]),
            custom=True,
            has_status="status" in subresources,
            scale=_scale_paths(scale) if scale else None,
            fields=Fields([item["jsonPath"].lstrip(".") for item in selectable]),
            columns=version.get("additionalPrinterColumns") or [],
            schema=(version.get("schema") or {}).get("openAPIV3Schema") or {},
        )
        served.is_stored = version["name"] == storage_version
        converts = spec.get("conversion") or {}
        if converts.get("strategy") == "Webhook":
            served.webhook = converts["webhook"]
        elif not served.is_stored:
            served.to_storage = versions.renamer(f"{spec['group']}/{storage_version}")
            served.from_storage = versions.renamer(kind.api_version)
        elif len((crd.get("status") or {}).get("storedVersions") or ()) > 1:
            # Some objects may be stored in a former storage version.
            served.from_storage = versions.renamer(kind.api_version)
        if version.get("deprecated"):
            served.deprecation = version.get("deprecationWarning") or _deprecation(
                kind, spec["versions"]
            )
        made.append(served)
    return made


def _deprecation(kind: Kind, all_versions: list[dict[str, Any]]) -> str:
    """Return the warning of a deprecated version, with the first preferred one that is not."""
    current = [v["name"] for v in all_versions if v.get("served") and not v.get("deprecated")]
    text = f"{kind.api_version} {kind.kind} is deprecated"
    better = [name for name in current if versions.order(name) < versions.order(kind.version)]
    if better:
        text += f"; use {kind.group}/{min(better, key=versions.order)} {kind.kind}"
    return text


def _scale_paths(scale: dict[str, Any]) -> ScalePaths:
    return ScalePaths(
        scale["specReplicasPath"].lstrip("."),
        scale["statusReplicasPath"].lstrip("."),
        (scale.get("labelSelectorPath") or "").lstrip("."),
    )


def _job_records() -> Served:
    kind = Kind(
        group=history.GROUP,
        version=history.VERSION,
        kind=history.KIND,
        plural=history.PLURAL,
        singular="jobrecord",
        verbs=("get", "list"),
        virtual=True,
    )
    columns = (
        ("Job", "string", ".record.name"),
        ("User", "string", ".record.user"),
        ("Queue", "string", ".record.queue"),
        ("State", "string", ".record.phase"),
        ("Run", "integer", ".record.runSeconds"),
        ("Wait", "integer", ".record.waitSeconds"),
        ("Ended", "date", ".record.finished"),
    )
    return Served(
        kind=kind,
        storage=_storage_name(kind.group, kind.plural),
        custom=True,
        columns=[{"name": name, "type": type, "jsonPath": path} for name, type, path in columns],
        schema={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    )


class Registry:
    """All served kinds. `revision` grows with each change, so documents can be cached."""

    def __init__(self) -> None:
        self._by_resource: dict[tuple[str, str, str], Served] = {}
        self._by_kind: dict[tuple[str, str], Served] = {}
        self._custom: dict[str, list[Served]] = {}
        self.revision = 0
        for kind in kinds.BUILTIN:
            self._add(_builtin(kind))

    def _add(self, served: Served) -> None:
        kind = served.kind
        self._by_resource[kind.group, kind.version, kind.plural] = served
        self._by_kind[kind.api_version, kind.kind] = served

    def lookup(self, group: str, version: str, plural: str) -> Served | None:
        return self._by_resource.get((group, version, plural))

    def by_kind(self, api_version: str, kind: str) -> Served | None:
        return self._by_kind.get((api_version, kind))

    def of_storage(self, storage: str) -> Served | None:
        """Return the storage version."""
        for served in self._by_resource.values():
            if served.storage == storage and served.is_stored:
                return served
        return None

    def equivalents(self, served: Served) -> list[Served]:
        """Return the other versions of the same objects."""
        return [
            other
            for other in self._by_resource.values()
            if other.storage == served.storage and other is not served
        ]

    def all(self) -> Iterator[Served]:
        return iter(list(self._by_resource.values()))

    def install(self, crd: dict[str, Any]) -> None:
        """Serve the kinds of a CustomResourceDefinition in place of its former ones."""
        self.uninstall(crd["metadata"]["name"])
        made = from_crd(crd)
        self._custom[crd["metadata"]["name"]] = made
        for served in made:
            self._add(served)
        self.revision += 1

    def serve_job_records(self) -> None:
        """Serve the history of jobs, which is read from a file and not stored as objects."""
        self._add(_job_records())
        self.revision += 1

    def uninstall(self, name: str) -> None:
        for served in self._custom.pop(name, []):
            kind = served.kind
            self._by_resource.pop((kind.group, kind.version, kind.plural), None)
            self._by_kind.pop((kind.api_version, kind.kind), None)
        self.revision += 1

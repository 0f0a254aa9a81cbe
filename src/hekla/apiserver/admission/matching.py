"""The admission request that webhooks and policies see, and rules that match it.

A write to a subresource is a request for a different kind: `pods/binding` creates a Binding,
`jobs/scale` updates a Scale, `pods/exec` is a CONNECT with options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from hekla.api import kinds
from hekla.apiserver import errors
from hekla.apiserver.schema.kinds import Served
from hekla.units.objects import Object
from hekla.units.selectors import LabelSelector

if TYPE_CHECKING:
    from hekla.apiserver.registry.options import Options
    from hekla.apiserver.storage.store import Store


EXEMPT_GROUP = "admissionregistration.k8s.io"
"""Admission configuration is exempt from admission, so that a mistake can be repaired."""


@dataclass(slots=True)
class AdmissionRequest:
    """A write under review. `obj` is None for DELETE; `old` is None for CREATE and CONNECT."""

    operation: str  # CREATE, UPDATE, DELETE or CONNECT
    served: Served
    namespace: str
    name: str
    obj: Object | None
    old: Object | None
    options: Options
    subresource: str = ""
    operation_options: Object = field(default_factory=dict)
    """The CreateOptions, UpdateOptions or DeleteOptions."""

    @property
    def kind(self) -> tuple[str, str, str]:
        """Group, version and kind of the object."""
        kind = self.served.kind
        if self.subresource and self.subresource in kind.subresources:
            inner = kinds.subresource(kind, self.subresource)
            return inner.group, inner.version, inner.kind
        return kind.group, kind.version, kind.kind

    @property
    def is_own_kind(self) -> bool:
        """Whether the object is of the resource's kind, in one of its versions."""
        kind = self.served.kind
        return self.kind == (kind.group, kind.version, kind.kind)


@dataclass(frozen=True, slots=True)
class Rule:
    """Operations and resources that a webhook or policy covers."""

    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: tuple[tuple[str, str], ...]
    scope: str
    names: frozenset[str] = frozenset()

    @classmethod
    def read(cls, rule: Mapping[str, Any]) -> Rule:
        pairs = [name.partition("/") for name in rule.get("resources") or ()]
        return cls(
            frozenset(rule.get("operations") or ()),
            frozenset(rule.get("apiGroups") or ()),
            frozenset(rule.get("apiVersions") or ()),
            tuple((resource, subresource) for resource, _, subresource in pairs),
            rule.get("scope") or "*",
            frozenset(rule.get("resourceNames") or ()),
        )

    def covers(self, operation: str, served: Served, subresource: str) -> bool:
        kind = served.kind
        is_cluster = not kind.namespaced
        return (
            bool(self.operations & {"*", operation})
            and bool(self.groups & {"*", kind.group})
            and bool(self.versions & {"*", kind.version})
            and (self.scope == "*" or (self.scope == "Cluster") == is_cluster)
            and any(
                resource in ("*", kind.plural) and inner in ("*", subresource)
                for resource, inner in self.resources
            )
        )


def matched(
    rules: Sequence[Rule],
    operation: str,
    versions: Sequence[Served],
    subresource: str,
    *,
    exact: bool,
) -> Served | None:
    """Return the version that a rule covers: the requested one (first) or an equivalent."""
    for served in versions[:1] if exact else versions:
        if any(rule.covers(operation, served, subresource) for rule in rules):
            return served
    return None


@dataclass(frozen=True, slots=True)
class Selectors:
    """Selects by labels of the namespace and of the object."""

    namespace: LabelSelector
    object: LabelSelector

    @classmethod
    def read(cls, match: Mapping[str, Any]) -> Selectors:
        return cls(
            LabelSelector.from_dict(match.get("namespaceSelector") or {}),
            LabelSelector.from_dict(match.get("objectSelector") or {}),
        )

    def match(self, review: AdmissionRequest, store: Store) -> bool:
        return self._match_namespace(review, store) and self._match_object(review)

    def _match_namespace(self, review: AdmissionRequest, store: Store) -> bool:
        if self.namespace.matches_everything:
            return True
        is_namespace = review.served.storage == "namespaces"
        if is_namespace and review.obj is not None and not review.subresource:
            return self.namespace.matches(_labels(review.obj))
        name = review.name if is_namespace else review.namespace
        if not name:
            return True
        namespace = namespace_object(store, name)
        if namespace is None:
            raise errors.not_found("", "namespaces", name)
        return self.namespace.matches(_labels(namespace))

    def _match_object(self, review: AdmissionRequest) -> bool:
        if self.object.matches_everything:
            return True
        return any(
            self.object.matches(_labels(obj))
            for obj in (review.obj, review.old)
            if obj is not None and "metadata" in obj
        )


def namespace_object(store: Store, name: str) -> Object | None:
    entry = store.head("namespaces", name)
    if entry is None:
        return None
    obj: Object = msgspec.json.decode(entry.body)
    return obj


def _labels(obj: Object) -> dict[str, str]:
    return (obj.get("metadata") or {}).get("labels") or {}

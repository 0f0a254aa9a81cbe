"""Label and field selectors over stored entries, decoding only selected fields.

Labels and selectable fields are decoded on first use by a struct with only those fields (a tenth of
the cost of a whole pod) and cached in the entry.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from hekla.apiserver.storage.watch_cache import Entry
from hekla.units.selectors import FieldSelector, LabelSelector

# Besides metadata.name and metadata.namespace, which each kind has. As in Kubernetes.
SELECTABLE: dict[str, tuple[str, ...]] = {
    "pods": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "events": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    "events.k8s.io/events": ("regarding.kind", "regarding.name", "regarding.namespace", "reason"),
    "secrets": ("type",),
    "certificates.k8s.io/certificatesigningrequests": ("spec.signerName",),
    "namespaces": ("status.phase",),
    "nodes": ("spec.unschedulable",),
    "replicationcontrollers": ("status.replicas",),
    "apps/replicasets": ("status.replicas",),
    "batch/jobs": ("status.successful",),
}

Matcher = Callable[[Entry], bool]


class _Meta(msgspec.Struct):
    labels: dict[str, str] | None = None


class _Labelled(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


_labels_decoder = msgspec.json.Decoder(_Labelled)


def labels_of(entry: Entry) -> dict[str, str]:
    labels = entry._labels
    if labels is None:
        labels = entry._labels = _labels_decoder.decode(entry.body).metadata.labels or {}
    return labels


def _fields_struct(paths: Sequence[str], prefix: str = "Fields") -> type[msgspec.Struct]:
    """Return a struct type with exactly these dotted paths."""
    nested: dict[str, list[str]] = {}
    for path in paths:
        head, _, rest = path.partition(".")
        nested.setdefault(head, []).append(rest)
    fields: list[Any] = []
    for name, rests in nested.items():
        inner = [rest for rest in rests if rest]
        kind = _fields_struct(inner, prefix + name.title()) | None if inner else Any
        fields.append((name, kind, None))
    return msgspec.defstruct(prefix, fields)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


class Fields:
    """The selectable fields of one resource."""

    def __init__(self, paths: Sequence[str] = ()) -> None:
        self.paths = tuple(paths)
        self._decoder = msgspec.json.Decoder(_fields_struct(self.paths)) if self.paths else None

    def supports(self, path: str) -> bool:
        return path in ("metadata.name", "metadata.namespace") or path in self.paths

    def of(self, entry: Entry) -> dict[str, str]:
        kept = entry._fields
        if kept is not None and kept[0] is self:  # versions of a kind may have different fields
            return kept[1]
        namespace, _, name = entry.key.rpartition("/")
        fields = {"metadata.name": name, "metadata.namespace": namespace}
        if self._decoder is not None:
            decoded = self._decoder.decode(entry.body)
            for path in self.paths:
                value: Any = decoded
                for part in path.split("."):
                    value = getattr(value, part, None) if value is not None else None
                fields[path] = _text(value)
        entry._fields = self, fields
        return fields


def matcher(
    labels: LabelSelector | None, selector: FieldSelector | None, fields: Fields
) -> Matcher | None:
    """Return a predicate over entries, or None if everything matches."""
    if labels is None and selector is None:
        return None
    if selector is None:
        assert labels is not None
        wanted = labels
        return lambda entry: wanted.matches(labels_of(entry))
    chosen = selector
    if labels is None:
        return lambda entry: chosen.matches(fields.of(entry).__getitem__)
    both = labels
    return lambda entry: (
        chosen.matches(fields.of(entry).__getitem__) and both.matches(labels_of(entry))
    )

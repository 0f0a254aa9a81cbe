"""Common parts of objects: metadata, conditions, selectors, Status; and decoding of models.

Models are msgspec Structs with only the fields that hekla reads. Lists are tuples: an absent list
costs nothing, and a shared object cannot be appended to. Times and quantities are text;
`hekla.units` parses them.

Note: a Struct drops unknown fields, so never write one back (send a patch, or keep the dict).
Structs are frozen because informers share them.
"""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar, dataclass_transform

import msgspec
from msgspec import field

from hekla.units import selectors

ResourceList: TypeAlias = dict[str, str | int | float]
"""Amounts by resource name. Manifests may contain numbers as well as strings."""

IntOrString: TypeAlias = int | str

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class _ModelMeta(msgspec.StructMeta):
    """Sets the options of every model: `kw_only` is not inherited, and mypy needs it."""

    def __new__(
        mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> _ModelMeta:
        shared = {"frozen": True, "kw_only": True, "omit_defaults": True, "rename": "camel"}
        # JSON trees have no cycles, so the garbage collector can skip them.
        return super().__new__(mcls, name, bases, namespace, **{**shared, "gc": False, **options})


class Model(msgspec.Struct, metaclass=_ModelMeta):
    """Base of all models."""


class OwnerReference(Model):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Model):
    """Without `managedFields`: half the bytes of many objects, used by the server only."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def controller(self) -> OwnerReference | None:
        """Return the controlling owner, if any."""
        return next((o for o in self.owner_references if o.controller), None)


class Object(Model):
    """An API object. List items have no apiVersion and kind, so both may be empty."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = field(default_factory=ObjectMeta)

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def key(self) -> str:
        """`namespace/name`, or the name of a cluster-scoped object."""
        meta = self.metadata
        return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def labels(self) -> dict[str, str]:
        return self.metadata.labels

    @property
    def annotations(self) -> dict[str, str]:
        return self.metadata.annotations

    @property
    def version(self) -> str:
        """The resourceVersion, to be sent with a patch that must not race."""
        return self.metadata.resource_version

    @property
    def is_deleting(self) -> bool:
        return self.metadata.deletion_timestamp is not None


class ListMeta(Model):
    resource_version: str = ""
    continue_: str = field(default="", name="continue")
    remaining_item_count: int | None = None


class LabelSelectorRequirement(Model):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Model):
    match_labels: dict[str, str] = field(default_factory=dict)
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()

    def compiled(self) -> selectors.LabelSelector:
        """Return the parsed selector."""
        return selectors.LabelSelector.from_dict(msgspec.to_builtins(self))


class Condition(Model):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int = 0


class StatusCause(Model):
    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(Model):
    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: int = 0


class Status(Model):
    """The response to a failed request. Note: encode it with apiVersion and kind; clients require
    them.
    """

    api_version: str = "v1"
    kind: str = "Status"
    metadata: ListMeta = field(default_factory=ListMeta)
    status: str = ""
    message: str = ""
    reason: str = ""
    details: StatusDetails | None = None
    code: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the encoded form; apiVersion, kind and metadata would otherwise be omitted."""
        body: dict[str, Any] = {"kind": self.kind, "apiVersion": self.api_version, "metadata": {}}
        body.update(msgspec.to_builtins(self))
        return body


class ObjectReference(Model):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


class TypedLocalObjectReference(Model):
    api_group: str | None = None
    kind: str = ""
    name: str = ""


class LocalObjectReference(Model):
    name: str = ""


# --- decoding ---------------------------------------------------------------------------------


_decoders: dict[type, msgspec.json.Decoder[Any]] = {}


def decoder(model: type[T]) -> msgspec.json.Decoder[T]:
    """Return the cached decoder of a model: creating one is far more expensive than using it."""
    known = _decoders.get(model)
    if known is None:
        known = _decoders[model] = msgspec.json.Decoder(model)
    return known


def decode(data: bytes | msgspec.Raw, model: type[T]) -> T:
    """Decode JSON into a model, with `null` as absent, as in Kubernetes.

    The fast path rejects a null in place of a list, map or struct. Go writes those for fields
    without `omitempty`, so a rejected object is decoded again without nulls.
    """
    try:
        return decoder(model).decode(data)
    except msgspec.ValidationError:
        return msgspec.convert(_without_nulls(msgspec.json.decode(data)), model)


def convert(obj: Any, model: type[T]) -> T:
    """Decode a parsed object, as `decode`."""
    try:
        return msgspec.convert(obj, model)
    except msgspec.ValidationError:
        return msgspec.convert(_without_nulls(obj), model)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [_without_nulls(v) for v in value]
    return value

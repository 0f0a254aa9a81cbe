"""Decoding of incoming objects: identity and schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hekla.apiserver import errors
from hekla.apiserver.schema.kinds import Served
from hekla.units.objects import Object

if TYPE_CHECKING:
    from hekla.apiserver.registry.options import Options

_EMPTY_MEANS_UNSET = ("labels", "annotations", "finalizers", "ownerReferences")


def check_identity(served: Served, namespace: str, obj: Any, *, name: str | None) -> None:
    """Check apiVersion, kind, name and namespace against the path; fill in missing ones."""
    kind = served.kind
    if not isinstance(obj, dict):
        raise errors.bad_request(f"a {kind.kind} must be a JSON object")
    for label, want in (("apiVersion", kind.api_version), ("kind", kind.kind)):
        given = obj.setdefault(label, want)
        if given != want:
            raise errors.bad_request(
                f"the object provided is unrecognized: {label} {given!r} was sent to a path "
                f"that takes {kind.api_version} {kind.kind}"
            )
    metadata = obj.get("metadata")
    if metadata is None:
        metadata = obj["metadata"] = {}
    if not isinstance(metadata, dict):
        raise errors.bad_request("metadata must be an object")
    if name is not None and metadata.setdefault("name", name) != name:
        raise errors.bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL "
            f"({name})"
        )
    if kind.namespaced:
        if not namespace:
            raise errors.bad_request(f"a namespace must be given for {kind.plural}")
        if not metadata.get("namespace"):
            metadata["namespace"] = namespace
        elif metadata["namespace"] != namespace:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the "
                "request"
            )
    else:
        metadata.pop("namespace", None)


def _undecodable(served: Served, why: str) -> errors.StatusError:
    kind = served.kind
    return errors.bad_request(
        f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}'
    )


def check_schema(served: Served, obj: Object, options: Options) -> None:
    findings = served.structural_schema.check(obj)
    if findings.type_errors:
        first = findings.type_errors[0]
        raise _undecodable(served, f"{first['field']}: {first['message']}")
    messages = [f'unknown field "{path[1:]}"' for path in findings.unknown] + options.duplicates
    if messages and options.field_validation == "Strict":
        raise _undecodable(served, f"strict decoding error: {', '.join(messages)}")
    if options.field_validation == "Warn":
        options.warnings += messages
    if findings.errors:
        name = obj["metadata"].get("name") or obj["metadata"].get("generateName") or ""
        raise errors.invalid(served.kind.group, served.kind.kind, name, findings.errors)
    metadata = obj["metadata"]
    for label in _EMPTY_MEANS_UNSET:
        if label in metadata and not metadata[label]:
            del metadata[label]
    if served.to_storage is not None:
        converted = served.to_storage(obj)
        obj.clear()
        obj.update(converted)

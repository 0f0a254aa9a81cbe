"""Patches on plain JSON: RFC 6902 operations, RFC 7386 merge, strategic merge.

Inputs are never changed. Patches are untrusted, so their size and depth are bounded first.

Note: a merge patch replaces every list as a whole; only a strategic merge (`strategic.py`,
re-exported here) merges lists, as the schema defines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import jsonpatch

from hekla.units.documents import MAX_DEPTH, copy_json, is_too_deep, json_equal
from hekla.units.errors import PatchError, PatchTestFailed
from hekla.units.strategic import strategic_merge_patch

__all__ = [
    "MAX_OPERATIONS",
    "PatchError",
    "PatchTestFailed",
    "create_merge_patch",
    "json_patch",
    "merge_patch",
    "strategic_merge_patch",
]

MAX_OPERATIONS: Final = 10_000  # as kube-apiserver
MAX_COPIED: Final = 3_000_000
"""Total characters and values that `copy` may add: the size of one request, as in kube-apiserver.
Otherwise a document that copies itself would double with each of 10,000 operations.
"""


def json_patch(document: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    """Apply RFC 6902 operations in order; all of them or none."""
    if not isinstance(operations, (list, tuple)):
        raise PatchError("JSON patch: must be a list of operations, each with op and path")
    if len(operations) > MAX_OPERATIONS:
        raise PatchError(
            f"JSON patch: has {len(operations)} operations, {MAX_OPERATIONS} are allowed; "
            "split it, or send a merge patch"
        )
    _reject_deep(document, "the document")
    result = copy_json(document)
    copied = 0
    for number, operation in enumerate(operations):
        if not isinstance(operation, Mapping):
            raise PatchError(f"JSON patch operation {number}: must be an object with op and path")
        if operation.get("op") == "copy":
            copied += _copied_size(result, operation)
            if copied > MAX_COPIED:
                raise PatchError(f"JSON patch operation {number}: copies too much data")
        result = _apply_operation(result, number, _as_kubernetes(result, operation))
    _reject_deep(result, "the patched document")
    return result


def _as_kubernetes(document: Any, operation: Mapping[str, Any]) -> Mapping[str, Any]:
    """Set a missing field on `replace`, as Kubernetes' library does; RFC 6902 rejects it."""
    if operation.get("op") != "replace" or not isinstance(operation.get("path"), str):
        return operation
    parent, _, _ = operation["path"].rpartition("/")
    try:
        holder = jsonpatch.JsonPointer(parent).resolve(document, None)
    except (jsonpatch.JsonPointerException, TypeError):
        return operation
    is_object = isinstance(holder, dict) and bool(operation["path"])
    return {**operation, "op": "add"} if is_object else operation


def _apply_operation(document: Any, number: int, operation: Mapping[str, Any]) -> Any:
    name = f"JSON patch operation {number} ({operation.get('op')} {operation.get('path')!r})"
    try:
        return jsonpatch.apply_patch(document, [operation], in_place=True)
    except jsonpatch.JsonPatchTestFailed as error:
        raise PatchTestFailed(f"{name}: the document does not hold the tested value") from error
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
        raise PatchError(f"{name}: {error}") from error
    except (TypeError, KeyError, IndexError, ValueError, AttributeError) as error:
        # the library does not check the types inside an operation
        raise PatchError(f"{name}: does not fit the document ({error})") from error


def _copied_size(document: Any, operation: Mapping[str, Any]) -> int:
    try:
        source = jsonpatch.JsonPointer(operation["from"]).resolve(document, None)
    except (jsonpatch.JsonPointerException, KeyError, TypeError, AttributeError):
        return 0  # applying it will report the error
    return _size(source)


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(len(key) + _size(item) for key, item in value.items())
    if isinstance(value, list):
        return 1 + sum(map(_size, value))
    return len(value) if isinstance(value, str) else 1


def merge_patch(document: Any, patch: Any, *, share: bool = False) -> Any:
    """Apply an RFC 7386 patch: objects are merged, null deletes, anything else replaces.

    With `share`, unchanged parts are the document's own dicts and lists instead of copies: ten
    times cheaper, for callers that never modify objects.
    """
    _reject_deep(patch, "the merge patch")
    if not isinstance(patch, dict):
        return copy_json(patch)
    merged = _merge(document if isinstance(document, dict) else {}, patch)
    return merged if share else copy_json(merged)


def _merge(target: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    result = dict(target)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            current = result.get(key)
            result[key] = _merge(current if isinstance(current, dict) else {}, value)
        else:
            result[key] = copy_json(value)
    return result


def create_merge_patch(old: Any, new: Any) -> Any:
    """Return the smallest merge patch from `old` to `new`; {} if they are equal.

    Note: a merge patch cannot set null: nulls in `new` become absent.
    """
    if not isinstance(old, dict) or not isinstance(new, dict):
        return copy_json(new)
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        if key not in old:
            patch[key] = copy_json(value)
        elif isinstance(value, dict) and isinstance(old[key], dict):
            if below := create_merge_patch(old[key], value):
                patch[key] = below
        elif not json_equal(old[key], value):
            patch[key] = copy_json(value)
    return patch


def _reject_deep(value: Any, what: str) -> None:
    if is_too_deep(value):
        raise PatchError(f"patch: {what} is nested deeper than {MAX_DEPTH} levels; flatten it")

"""Kubernetes' strategic merge patch: a merge patch that merges lists by key.

`kubectl apply`, `edit` and `label` send it for built-in kinds. It may contain directives:

    $patch: replace | delete | merge      how to treat this object, or this list element
    $retainKeys: [...]                    drop all other keys of this object
    $deleteFromPrimitiveList/<field>      values to remove from a merged list of scalars
    $setElementOrder/<field>              the order of a merged list

Note: a new element of a merged list comes before the existing ones, as in Kubernetes, unless
`$setElementOrder` differs. Without a schema (`ANY`) this is a plain merge patch.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

from hekla.units.documents import MAX_DEPTH, copy_json, is_too_deep
from hekla.units.errors import PatchError
from hekla.units.objects import Object
from hekla.units.shapes import Shape

__all__ = ["strategic_merge_patch"]

_DIRECTIVE: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_DELETE_FROM: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"


def strategic_merge_patch(
    document: Any, patch: Any, shape: Shape, *, share: bool = False
) -> dict[str, Any]:
    """Merge `patch` into `document` by `shape`. See `merge_patch` for `share`."""
    if not isinstance(patch, dict):
        raise PatchError("strategic merge patch: must be an object")
    if is_too_deep(patch):
        raise PatchError(f"strategic merge patch: is nested deeper than {MAX_DEPTH} levels")
    merged = _merge_map(document if isinstance(document, dict) else {}, patch, shape, "")
    result: dict[str, Any] = merged if share else copy_json(merged)
    return result


def _merge_map(original: Object, patch: Object, shape: Shape, path: str) -> Object:
    match patch.get(_DIRECTIVE, "merge"):
        case "replace":
            return _clean_map(patch)
        case "delete":
            return {}
        case "merge":
            pass  # the default; Kubernetes rejects it here
        case directive:
            _reject(path, f"unknown $patch directive {directive!r}; use replace, delete or merge")
    result = _retained(original, patch, path) if _RETAIN in patch else dict(original)
    ordered = _reduce_and_order(result, patch, shape, path)
    for key, value in patch.items():
        if key in ordered or _is_directive(key):
            continue
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge_value(result.get(key), value, shape.field(key), f"{path}.{key}")
            if result[key] is None:  # the value was a directive for something absent
                del result[key]
    return result


def _merge_value(current: Any, value: Any, shape: Shape, path: str) -> Any:
    if isinstance(value, dict):
        if not isinstance(current, dict):
            return _clean(value)
        if "replace" in shape.patch_strategies:
            return _clean_map(value)
        return _merge_map(current, value, shape, path)
    if isinstance(value, list):
        if isinstance(current, list):
            return _merge_list(current, value, shape, path)
        return _clean(value)
    return value


def _retained(original: Object, patch: Object, path: str) -> Object:
    keys = patch[_RETAIN]
    if not isinstance(keys, list):
        _reject(path, "$retainKeys must be a list of field names")
    names = {key for key in keys if isinstance(key, str)}
    for key, value in patch.items():
        if value is not None and not _is_directive(key) and key not in names:
            _reject(path, f"sets {key!r} but leaves it out of $retainKeys; name it there")
    return {key: value for key, value in original.items() if key in names}


def _reduce_and_order(result: Object, patch: Object, shape: Shape, path: str) -> set[str]:
    """Apply the parallel lists for deletion and order; return the handled fields."""
    done: set[str] = set()
    for directive, values in patch.items():
        if directive.startswith(_DELETE_FROM):
            field = directive.removeprefix(_DELETE_FROM)
            if not isinstance(values, list):
                _reject(path, f"{directive} must be a list")
            if isinstance(result.get(field), list):
                gone = {json.dumps(value, sort_keys=True) for value in values}
                result[field] = [
                    item for item in result[field] if json.dumps(item, sort_keys=True) not in gone
                ]
    for directive, order in patch.items():
        if directive.startswith(_ORDER):
            field = directive.removeprefix(_ORDER)
            if not isinstance(order, list):
                _reject(path, f"{directive} must be a list")
            if patch.get(field, order) is None:
                continue  # the list itself is deleted
            _merge_in_order(result, patch, shape.field(field), field, order, f"{path}.{field}")
            done.add(field)
    return done


def _merge_in_order(
    result: Object, patch: Object, shape: Shape, field: str, order: list[Any], path: str
) -> None:
    live, changes = result.get(field), patch.get(field)
    for name, value in (("the document", live), ("the patch", changes)):
        if value is not None and not isinstance(value, list):
            _reject(path, f"is ordered by the patch, but is no list in {name}")
    key = shape.patch_merge_key
    _check_order(changes or [], order, key, path)
    if changes is None:
        if live is None:
            return
        merged = live
    elif live is None:
        merged = _clean(changes)
    else:
        merged = _merge_list(live, changes, shape, path)
    result[field] = _arrange(merged, order, live or [], key, path)


def _check_order(changes: list[Any], order: list[Any], key: str | None, path: str) -> None:
    """Check that the order names every element that the patch sets, in the same sequence."""
    if not order:
        return
    places = [_identity(item, key, path) for item in order]
    start = 0
    for item in changes:
        if isinstance(item, dict) and _DIRECTIVE in item:
            continue
        wanted = _identity(item, key, path)
        try:
            start = places.index(wanted, start) + 1
        except ValueError:
            _reject(path, f"$setElementOrder does not name {wanted!r} in the patch's own order")


def _merge_list(live: list[Any], changes: list[Any], shape: Shape, path: str) -> list[Any]:
    if "merge" not in shape.patch_strategies:
        return _clean_list(changes)
    if not any(isinstance(item, dict) for item in (*live, *changes)):
        merged = list(dict.fromkeys([*live, *changes])) if _hashable(live, changes, path) else []
        return _arrange(merged, changes, live, None, path)
    key = shape.patch_merge_key
    if key is None:
        _reject(path, "is merged element by element, but its schema names no merge key")
    return _merge_list_of_maps(live, changes, shape, key, path)


def _merge_list_of_maps(
    live: list[Any], changes: list[Any], shape: Shape, key: str, path: str
) -> list[Any]:
    gone: set[Any] = set()
    wanted: list[Object] = []
    replaces = False
    for item in changes:
        if not isinstance(item, dict):
            _reject(path, f"mixes objects with {item!r}; every element needs {key!r}")
        match item.get(_DIRECTIVE, "merge"):
            case "merge":
                wanted.append({name: value for name, value in item.items() if name != _DIRECTIVE})
            case "replace":
                replaces = True
            case "delete":
                gone.add(_identity(item, key, path))
            case directive:
                _reject(path, f"unknown $patch directive {directive!r}")
    if replaces:
        return [_clean_map(item) for item in wanted]
    kept = [each for each in live if _identity(each, key, path) not in gone] if gone else live
    merged = list(kept)
    places: dict[Any, int] = {}
    for place, each in enumerate(kept):
        places.setdefault(_identity(each, key, path), place)
    for item in wanted:
        identity = _identity(item, key, path)
        if identity in places:
            place = places[identity]
            merged[place] = _merge_map(merged[place], item, shape.items, f"{path}[{identity}]")
        else:
            places[identity] = len(merged)
            merged.append(_clean_map(item))
    return _arrange(merged, wanted, kept, key, path)


def _arrange(
    merged: list[Any], order: list[Any], live: list[Any], key: str | None, path: str
) -> list[Any]:
    """Return named elements in `order` and others in live order, interleaved as before."""
    if key is None and any(isinstance(item, dict) for item in merged):
        return merged  # an atomic list of objects keeps the given order
    ranks: dict[Any, int] = {}
    for rank, item in enumerate(order):
        ranks.setdefault(_identity(item, key, path), rank)
    live_ranks: dict[Any, int] = {}
    for rank, item in enumerate(live):
        live_ranks.setdefault(_identity(item, key, path), rank)

    tagged = [(_identity(item, key, path), item) for item in merged]
    named = sorted((each for each in tagged if each[0] in ranks), key=lambda each: ranks[each[0]])
    others = [each for each in tagged if each[0] not in ranks]
    arranged: list[Any] = []
    for identity, item in named:
        place = live_ranks.get(identity)
        while others and place is not None and live_ranks.get(others[0][0], place) < place:
            arranged.append(others.pop(0)[1])
        arranged.append(item)
    return arranged + [item for _, item in others]


def _identity(item: Any, key: str | None, path: str) -> Any:
    if key is None:
        value = item
    elif not isinstance(item, dict) or key not in item:
        _reject(path, f"has an element without its merge key {key!r}; add it")
    else:
        value = item[key]
    if isinstance(value, (dict, list)):
        _reject(path, f"{value!r} cannot identify an element of a merged list")
    return value


def _hashable(live: list[Any], changes: list[Any], path: str) -> bool:
    if any(isinstance(item, list) for item in (*live, *changes)):
        _reject(path, "lists of lists cannot be merged")
    return True


def _is_directive(key: str) -> bool:
    return key[:1] == "$" and (
        key in (_DIRECTIVE, _RETAIN) or key.startswith((_DELETE_FROM, _ORDER))
    )


def _clean(value: Any) -> Any:
    """Return a copy without directives and nulls; None if it is a directive."""
    if isinstance(value, dict):
        return None if _DIRECTIVE in value else _clean_map(value)
    return _clean_list(value) if isinstance(value, list) else value


def _clean_map(patch: Object) -> Object:
    cleaned: Object = {}
    for key, value in patch.items():
        if value is not None and not _is_directive(key):
            kept = _clean(value)
            if kept is not None:
                cleaned[key] = kept
    return cleaned


def _clean_list(items: list[Any]) -> list[Any]:
    cleaned = []
    for item in items:
        kept = _clean(item)
        if kept is not None or item is None:
            cleaned.append(kept)
    return cleaned


def _reject(path: str, reason: str) -> NoReturn:
    raise PatchError(f"strategic merge patch: {path or 'the object'}: {reason}")

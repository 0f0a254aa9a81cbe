"""Sets of field paths in the `fieldsV1` format of `metadata.managedFields`, and their algebra.

A set is represented by its JSON: a tree of dicts with path elements as keys.

    f:replicas                    the field of that name
    k:{"name":"web"}              the element with these keys, of a list that is a map
    v:"example.com/guard"         the element with this value, of a list that is a set
    i:3                           the element at this index; unused today
    .                             the path up to here is itself a member

Note: `{}` below a key means "this path is a member", a tree with "." means "member, and more
below", a tree without "." means "only what is below". At the top `{}` is the empty set. All
functions are pure; results may share parts with their arguments, and are the argument itself if
nothing changed, so `is` detects changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from json.encoder import encode_basestring
from typing import Any, TypeAlias

from hekla.units.errors import FieldSetError

__all__ = [
    "FieldSet",
    "FieldSetError",
    "Path",
    "check_fields",
    "decode_fields",
    "encode_fields",
    "field_path",
    "intersect",
    "key_element",
    "subtract",
    "union",
    "value_element",
]

FieldSet: TypeAlias = dict[str, Any]
Path: TypeAlias = tuple[str, ...]

SELF = "."
_MAX_DEPTH = 200


def value_element(value: Any) -> str:
    """Return the path element of a value in a set."""
    return "v:" + _scalar(value)


def key_element(keys: Iterable[tuple[str, Any]]) -> str:
    """Return the path element of an object in a map list; keys are sorted by name."""
    return (
        "k:{"
        + ",".join([f"{encode_basestring(name)}:{_scalar(value)}" for name, value in keys])
        + "}"
    )


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return encode_basestring(value)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # 80.0 and 80 are the same port
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def field_path(path: Sequence[str]) -> str:
    """Return the path in readable form: `.spec.containers[name="a"].image`."""
    return "".join(map(_readable, path))


def _readable(element: str) -> str:
    kind, rest = element[:2], element[2:]
    if kind == "f:":
        return "." + rest
    if kind == "k:":
        keys = json.loads(rest)
        return "[" + ",".join(f"{name}={_scalar(value)}" for name, value in keys.items()) + "]"
    return f"[={rest}]" if kind == "v:" else f"[{rest}]"


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return the union of two sets."""
    if not left or not right:
        return left or right
    return _union(left, right)


def _union(left: FieldSet, right: FieldSet) -> FieldSet:
    if not left or not right:  # one side is a single member: make the other one a member too
        other = right if right else left
        return other if not other or SELF in other else {SELF: {}, **other}
    result = None
    for key, below in right.items():
        mine = left.get(key)
        merged = below if mine is None else _union(mine, below)
        if merged is not mine:
            if result is None:
                result = dict(left)
            result[key] = merged
    return left if result is None else result


def subtract(left: FieldSet, right: FieldSet) -> FieldSet:
    """Paths of `left` that are not in `right`. Exact: a path does not take those below it along."""
    if not left or not right:
        return left
    return _subtract(left, right) or {}


def _subtract(left: FieldSet, right: FieldSet) -> FieldSet | None:
    if not left:  # a lone member
        return None if not right or SELF in right else left
    if not right:
        if SELF not in left:
            return left
        return {key: below for key, below in left.items() if key != SELF}
    result = None
    for key, below in right.items():
        mine = left.get(key)
        if mine is None:
            continue
        rest = None if key == SELF else _subtract(mine, below)
        if rest is not mine:
            if result is None:
                result = dict(left)
            if rest is None:
                del result[key]
            else:
                result[key] = rest
    if result is None:
        return left
    if not result:
        return None
    return {} if len(result) == 1 and SELF in result else result


def intersect(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return the intersection of two sets."""
    if not left or not right:
        return {}
    return _intersect(left, right) or {}


def _intersect(left: FieldSet, right: FieldSet) -> FieldSet | None:
    result: FieldSet = {}
    is_member = (not left or SELF in left) and (not right or SELF in right)
    for key, below in left.items():
        other = right.get(key)
        if other is not None and key != SELF:
            both = _intersect(below, other)
            if both is not None:
                result[key] = both
    if is_member:
        return {SELF: {}, **result} if result else {}
    return result or None


def decode_fields(fields: FieldSet) -> frozenset[Path]:
    """Return all member paths as tuples of path elements."""
    return frozenset(iterate(fields))


def iterate(fields: FieldSet) -> Iterator[Path]:
    """Yield all member paths, each before those below it."""
    for key, below in fields.items():
        if key != SELF:
            yield from _iterate((key,), below)


def _iterate(path: Path, node: FieldSet) -> Iterator[Path]:
    if not node or SELF in node:
        yield path
    for key, below in node.items():
        if key != SELF:
            yield from _iterate((*path, key), below)


def encode_fields(paths: Iterable[Path]) -> FieldSet:
    """Return the tree with exactly these members."""
    fields: FieldSet = {}
    for path in sorted(paths, key=len, reverse=True):  # longer first, so "." is added to trees only
        node = fields
        for element in path[:-1]:
            node = node.setdefault(element, {})
        if path:
            last = node.setdefault(path[-1], {})
            if last:
                last[SELF] = {}
    return fields


def check_fields(fields: Any) -> FieldSet:
    """Parse a set from a client: reject invalid input and normalize each element."""
    checked = _check(fields, 0)
    return {key: below for key, below in checked.items() if key != SELF}


def _check(node: Any, depth: int) -> FieldSet:
    if not isinstance(node, dict):
        raise FieldSetError(f"fieldsV1: {node!r} must be an object of path elements")
    if depth > _MAX_DEPTH:
        raise FieldSetError(f"fieldsV1: is nested deeper than {_MAX_DEPTH} levels")
    result: FieldSet = {}
    for key, below in node.items():
        if key == SELF:
            result[SELF] = {}
        else:
            result[_canonical(key)] = _check(below, depth + 1)
    return {} if len(result) == 1 and SELF in result else result


def _canonical(element: str) -> str:
    kind, rest = element[:2], element[2:]
    if kind == "f:":
        return element
    try:
        if kind == "k:":
            keys = json.loads(rest)
            if isinstance(keys, dict):
                return key_element(sorted(keys.items()))
        elif kind == "v:":
            return value_element(json.loads(rest))
        elif kind == "i:":
            return f"i:{int(rest)}"
    except ValueError as error:
        raise FieldSetError(f"fieldsV1: path element {element!r}: {error}") from error
    raise FieldSetError(
        f"fieldsV1: {element!r} is no path element; they begin with f:, k:, v: or i:"
    )

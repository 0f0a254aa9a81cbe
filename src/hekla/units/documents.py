"""Copy, compare and measure plain JSON documents.

Note: Python's `==` differs from JSON's: `True == 1`. `copy.deepcopy` is three times slower than
needed for a tree of dicts and lists.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["MAX_DEPTH", "copy_json", "is_text_too_deep", "is_too_deep", "json_equal"]

MAX_DEPTH: Final = 200
"""Deeper documents are rejected. Kubernetes objects stay below 30, CRD schemas below 100."""


def copy_json(value: Any) -> Any:
    """Return a copy that shares no dict or list with the original.

    `dict.copy()` followed by copying the few inner containers takes half the time of a
    comprehension. A JSON decoder creates no subclasses, so `__class__ is` replaces `isinstance`.
    """
    if value.__class__ is dict:
        copied = value.copy()
        for key, item in value.items():
            if item.__class__ is dict:
                copied[key] = copy_json(item) if item else {}
            elif item.__class__ is list:
                copied[key] = copy_json(item)
        return copied
    if value.__class__ is list:
        return [
            copy_json(item) if item.__class__ is dict or item.__class__ is list else item
            for item in value
        ]
    return value


def json_equal(left: Any, right: Any) -> bool:
    """Compare as JSON: true is not 1, while 1 and 1.0 are equal."""
    if left is right:
        return True
    if left != right:  # cheap, in C; the rest only distinguishes booleans
        return False
    if isinstance(left, dict):
        return all(json_equal(value, right[key]) for key, value in left.items())
    if isinstance(left, list):
        return all(map(json_equal, left, right))
    return isinstance(left, bool) == isinstance(right, bool)


def is_text_too_deep(text: bytes, value: Any) -> bool:
    """Return whether `value`, decoded from the JSON `text`, is nested too deep.

    Most texts have too few brackets for that; counting them costs nothing beside a walk.
    """
    if text.count(b"{") + text.count(b"[") <= MAX_DEPTH:
        return False
    return is_too_deep(value)


def is_too_deep(value: Any, limit: int = MAX_DEPTH) -> bool:
    """Return whether containers are nested deeper than `limit`, without recursion."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(limit):
        if not level:
            return False
        level = [
            item
            for container in level
            for item in (container.values() if isinstance(container, dict) else container)
            if isinstance(item, (dict, list))
        ]
    return bool(level)

"""Seeded mutations of valid inputs: flipped bytes, swapped pieces, JSON of other types."""

from __future__ import annotations

import json
from copy import deepcopy
from random import Random
from typing import Any

ODD_BYTES = (
    b"\x00",
    b"\xff",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"{",
    b"}",
    b"[",
    b'"',
    b"\\",
    b"%",
    b"\n",
)
ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**63,
    -(2**63) - 1,
    10**400,
    0.5,
    1e308,
    "",
    "a",
    "\0",
    "é" * 300,
    "../..",
    "1e999999999",
    "99999999999999999999Gi",
    "2026-13-45T99:99:99Z",
    [],
    {},
    [[]],
    [None],
    {"": None},
    {"a": {"a": {"a": {}}}},
    ["x"] * 50,
    {"$patch": "delete"},
    {"$patch": "replace"},
    {"$retainKeys": ["x"]},
)


def mutate_bytes(given: bytes, random: Random) -> bytes:
    """Change a few bytes or pieces."""
    made = bytearray(given)
    for _ in range(random.choice((1, 1, 2, 4, 16))):
        at = random.randrange(len(made) + 1)
        match random.randrange(6):
            case 0 if made:
                made[at % len(made)] = random.randrange(256)
            case 1:
                made[at:at] = random.choice(ODD_BYTES)
            case 2:
                del made[at : at + random.choice((1, 2, 8, 64))]
            case 3:
                made[at:at] = made[at : at + random.choice((1, 4, 32))]
            case 4:
                made[at:at] = random.randbytes(random.choice((1, 4, 16)))
            case _:
                made[at:at] = str(random.choice((0, -1, 2**63, 10**30))).encode()
    return bytes(made)


def mutate_json(given: Any, random: Random) -> Any:
    """Change a few values, keys or items of a document to other types."""
    made = deepcopy(given)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        made = _change(made, random)
    return made


def _change(value: Any, random: Random) -> Any:
    if isinstance(value, dict) and value and random.random() < 0.85:
        key = random.choice(list(value))
        match random.randrange(8):
            case 0:
                del value[key]
            case 1:
                value[random.choice(("", "name", "spec", "metadata", "é", key * 3))] = deepcopy(
                    value[key]
                )
            case 2:
                value[key] = deepcopy(random.choice(ODD_VALUES))
            case _:
                value[key] = _change(value[key], random)
        return value
    if isinstance(value, list) and value and random.random() < 0.85:
        at = random.randrange(len(value))
        match random.randrange(5):
            case 0:
                value.append(deepcopy(value[at]))
            case 1:
                value[at] = deepcopy(random.choice(ODD_VALUES))
            case _:
                value[at] = _change(value[at], random)
        return value
    return deepcopy(random.choice(ODD_VALUES))


def as_json(value: Any) -> bytes:
    """Encode lone surrogates, too."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")

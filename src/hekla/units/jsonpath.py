r"""Kubernetes' JSONPath dialect of `additionalPrinterColumns`: parse and evaluate.

    .spec.queue    .a['b.c']    .a.b\.c    .a[0]    .a[-1]    .a[0:2]    .a[*].name    ..name
    .status.conditions[?(@.type=="Ready")].status

Note: a missing key yields nothing and is never an error, since a status may be empty.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

Step = Callable[[Any], Iterator[Any]]

_FIELD = re.compile(r"(?:\\.|[^.\[\]\\\s])+")
_SLICE = re.compile(r"(-?\d*):(-?\d*)(?::(\d+))?")
_FILTER = re.compile(r"\?\((.*)\)", re.DOTALL)
_COMPARISON = re.compile(r"""^((?:"[^"]*"|'[^']*'|[^"'<>=!])*?)\s*(==|!=|<=|>=|<|>)\s*(.*)$""")
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_LITERALS = {"true": True, "false": False, "null": None}


class PathError(ValueError):
    """The path cannot be parsed; the message contains the position."""


class JsonPath:
    """A parsed path, from `compile_path`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._steps = list(_steps(text))

    def find(self, value: Any) -> list[Any]:
        """Return all values at the path, in order."""
        found = [value]
        for step in self._steps:
            found = [inner for one in found for inner in step(one)]
        return found


@lru_cache(maxsize=1024)
def compile_path(text: str) -> JsonPath:
    return JsonPath(text)


def _steps(text: str) -> Iterator[Step]:
    position = 0
    # Braces and a leading `$` are allowed, as in kubectl's -o jsonpath.
    text = text.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1].strip()
    if text[:1] in ("$", "@"):
        text = text[1:]
    while position < len(text):
        rest = text[position:]
        if rest.startswith("["):
            inside, length = _bracket(text, position)
            yield _subscript(inside.strip(), text)
            position += length
        elif rest.startswith("..") and (match := _FIELD.match(rest, 2)):
            yield _deep(_name(match[0]))
            position += match.end()
        elif rest.startswith("..["):
            yield _everything_below
            position += 2
        elif rest.startswith(".") and (match := _FIELD.match(rest, 1)):
            yield _every if match[0] == "*" else _field(_name(match[0]))
            position += match.end()
        elif rest == ".":
            return
        elif position == 0 and (match := _FIELD.match(rest)):
            yield _field(_name(match[0]))  # Kubernetes accepts a first field without its dot
            position += match.end()
        else:
            raise PathError(f"path {text!r}: cannot be read from {rest!r} on")


def _name(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _bracket(text: str, start: int) -> tuple[str, int]:
    """Return the text up to the closing bracket, skipping quotes and inner brackets."""
    depth = 0
    quote = ""
    for index in range(start, len(text)):
        letter = text[index]
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "[":
            depth += 1
        elif letter == "]":
            depth -= 1
            if depth == 0:
                return text[start + 1 : index], index + 1 - start
    raise PathError(f"path {text!r}: the bracket at {text[start:]!r} is not closed")


def _subscript(inside: str, text: str) -> Step:
    if inside == "*":
        return _every
    if match := _FILTER.fullmatch(inside):
        return _filter(match[1].strip(), text)
    if match := _SLICE.fullmatch(inside):
        bounds = [int(bound) if bound else None for bound in match.groups()]
        return _slice(slice(*bounds))
    choices = [_choice(piece.strip(), text) for piece in _pieces(inside)]
    return lambda value: (found for choice in choices for found in choice(value))


def _pieces(inside: str) -> list[str]:
    """Split a union such as `0,1` or `'a','b'`."""
    return re.findall(r"""(?:'[^']*'|"[^"]*"|[^,'"])+""", inside) or [""]


def _choice(piece: str, text: str) -> Step:
    if piece[:1] in ("'", '"') and piece[-1:] == piece[:1] and len(piece) > 1:
        return _field(piece[1:-1])
    if re.fullmatch(r"-?\d+", piece):
        return _index(int(piece))
    raise PathError(f"path {text!r}: [{piece}] is neither a number, a quoted name, * nor a filter")


def _field(name: str) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _index(index: int) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list) and -len(value) <= index < len(value):
            yield value[index]

    return step


def _slice(bounds: slice) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list):
            yield from value[bounds]

    return step


def _every(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        yield from value
    elif isinstance(value, dict):
        yield from (value[key] for key in sorted(value))


def _everything_below(value: Any) -> Iterator[Any]:
    yield value
    for inner in _every(value):
        yield from _everything_below(inner)


def _deep(name: str) -> Step:
    wanted = _every if name == "*" else _field(name)

    def step(value: Any) -> Iterator[Any]:
        for one in _everything_below(value):
            yield from wanted(one)

    return step


def _filter(condition: str, text: str) -> Step:
    match = _COMPARISON.match(condition)
    if match is None:
        wanted = compile_path(condition)
        return lambda value: (item for item in _items(value) if wanted.find(item))
    left, right = _operand(match[1].strip(), text), _operand(match[3].strip(), text)
    compare = _OPERATORS[match[2]]

    def step(value: Any) -> Iterator[Any]:
        for item in _items(value):
            lefts, rights = left(item), right(item)
            if lefts and rights and _holds(compare, lefts[0], rights[0]):
                yield item

    return step


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _operand(text: str, path: str) -> Callable[[Any], list[Any]]:
    if text[:1] == "@":
        return compile_path(text).find
    if text[:1] in ("'", '"') and len(text) > 1:
        literal: Any = text[1:-1]
    elif text in _LITERALS:
        literal = _LITERALS[text]
    else:
        try:
            literal = float(text)
        except ValueError:
            raise PathError(f"path {path!r}: {text!r} is no value to compare with") from None
    return lambda _: [literal]


def _holds(compare: Callable[[Any, Any], bool], left: Any, right: Any) -> bool:
    if isinstance(left, bool) != isinstance(right, bool):
        return compare is operator.ne
    try:
        return compare(left, right)
    except TypeError:  # a string and a number have no order
        return False

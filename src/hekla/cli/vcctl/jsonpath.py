r"""kubectl's jsonpath templates: text with paths in braces.

    {.metadata.name}{"\n"}
    {range .items[*]}{.metadata.name}{"\t"}{.status.state.phase}{"\n"}{end}

Paths are those of printer columns; this module adds the template syntax.

Note: everything outside of braces is literal text, so a newline is written {"\n"}.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hekla.cli.vcctl.errors import CommandFailed
from hekla.units.jsonpath import PathError, compile_path

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'"}


@dataclass
class _Range:
    path: str
    parts: list[Any] = field(default_factory=list)


def render(template: str, value: Any) -> str:
    """Render the template with an object, or with a list as `{"items": […]}`."""
    try:
        return "".join(_filled(_parsed(template), value))
    except PathError as error:
        raise CommandFailed(
            f"jsonpath: {error}", hint="write it as -o jsonpath='{.metadata.name}'"
        ) from error


def _parsed(template: str) -> list[Any]:
    """Parse text as `str`, paths as `("path", …)`, loops as `_Range`."""
    if "{" not in template:
        template = f"{{{template}}}"  # as kubectl: a single path needs no braces
    root: list[Any] = []
    stack = [root]
    for kind, text in _pieces(template):
        if kind == "text":
            stack[-1].append(text)
        elif text.startswith("range "):
            loop = _Range(text.removeprefix("range ").strip())
            stack[-1].append(loop)
            stack.append(loop.parts)
        elif text == "end":
            if len(stack) == 1:
                raise PathError("{end} without {range …}")
            stack.pop()
        elif text[:1] in ("'", '"') and text[-1:] == text[:1] and len(text) > 1:
            stack[-1].append(_unescaped(text[1:-1]))
        else:
            compile_path(text)  # report an invalid path now, not with the first object
            stack[-1].append(("path", text))
    if len(stack) != 1:
        raise PathError("{range …} without {end}")
    return root


def _pieces(template: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(template):
        start = template.find("{", position)
        if start < 0:
            yield "text", template[position:]
            return
        if start > position:
            yield "text", template[position:start]
        end = _closing(template, start)
        yield "action", template[start + 1 : end].strip()
        position = end + 1


def _closing(template: str, start: int) -> int:
    quote = ""
    index = start + 1
    while index < len(template):
        letter = template[index]
        if letter == "\\" and quote:
            index += 1
        elif quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "}":
            return index
        index += 1
    raise PathError(f"the brace at {template[start:]!r} is not closed")


def _unescaped(text: str) -> str:
    letters = iter(text)
    return "".join(_ESCAPES.get(n := next(letters, ""), n) if c == "\\" else c for c in letters)


def _filled(parts: list[Any], value: Any) -> Iterator[str]:
    for part in parts:
        if isinstance(part, str):
            yield part
        elif isinstance(part, _Range):
            for item in compile_path(part.path).find(value):
                yield from _filled(part.parts, item)
        else:
            yield " ".join(_text(found) for found in compile_path(part[1]).find(value))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)

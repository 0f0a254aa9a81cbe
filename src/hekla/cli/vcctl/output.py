"""Output formats: Volcano's tables, and -o wide|json|yaml|name|jsonpath.

Note: Volcano pads every cell, including the last one. Some columns are as wide as their longest
cell plus a gap, others have a fixed width; `Column` has both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from hekla.cli import terminal
from hekla.kube.resources import Resource
from hekla.units.objects import Object

F = TypeVar("F", bound=Callable[..., Any])

NONE_FOUND = "No resources found"
FORMATS = ("wide", "json", "yaml", "name", "jsonpath=")


@dataclass(frozen=True, slots=True)
class Column:
    """A header, the text of a cell, and the width.

    `width` is fixed as in Volcano, and grows only if cells would run together; a column with `gap`
    is as wide as its longest cell plus the gap.
    """

    header: str
    cell: Callable[[Object], object]
    width: int = 0
    gap: int | None = None
    colour: Callable[[str], str | None] | None = None
    wide: bool = False

    def fit(self, cells: Iterable[str], *, last: bool) -> int:
        longest = max([len(self.header), *map(len, cells)])
        if self.gap is not None:
            return max(longest + self.gap, self.width)
        return self.width if last else max(self.width, longest + 1)


class Table:
    """Columns laid out for some objects; later rows of a watch keep the widths."""

    def __init__(self, columns: Sequence[Column], objects: Sequence[Object]) -> None:
        self._columns = columns
        cells = [self._cells(obj) for obj in objects]
        self._widths = [
            column.fit((row[index] for row in cells), last=index == len(columns) - 1)
            for index, column in enumerate(columns)
        ]

    def _cells(self, obj: Object) -> list[str]:
        return [str(column.cell(obj)) for column in self._columns]

    def header(self) -> str:
        names = (column.header for column in self._columns)
        return "".join(f"{name:<{width}}" for name, width in zip(names, self._widths, strict=True))

    def row(self, obj: Object) -> str:
        parts = zip(self._columns, self._cells(obj), self._widths, strict=True)
        return "".join(_coloured(column, text, width) for column, text, width in parts)


def _coloured(column: Column, text: str, width: int) -> str:
    padded = f"{text:<{width}}"
    colour = column.colour(text) if column.colour is not None else None
    return terminal.style(text, fg=colour) + padded[len(text) :] if colour else padded


_PHASE_COLOURS = {
    "Running": "green",
    "Open": "green",
    "Completed": "blue",
    "Succeeded": "blue",
    "Succeed": "blue",
    "Pending": "yellow",
    "Inqueue": "cyan",
    "Restarting": "yellow",
    "Closing": "yellow",
    "Aborted": "magenta",
    "Aborting": "magenta",
    "Failed": "red",
    "Error": "red",
    "CrashLoopBackOff": "red",
    "Terminated": "red",
    "Closed": "red",
    "Unknown": "red",
}


def phase_colour(text: str) -> str | None:
    return _PHASE_COLOURS.get(text)


class Format(click.ParamType):  # type: ignore[type-arg]  # generic only in newer click
    """Add the option -o."""

    name = "format"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if text in FORMATS[:-1] or text == "" or text.startswith("jsonpath="):
            return text
        self.fail(f"{text!r} is not one of wide, json, yaml, name, jsonpath='{{…}}'", param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(word) for word in FORMATS if word.startswith(incomplete)]


def output_option(function: F) -> F:
    return click.option(
        "-o",
        "--output",
        type=Format(),
        default="",
        metavar="FORMAT",
        help="wide, json, yaml, name or jsonpath='{…}'.",
    )(function)


def show_list(
    resource: Resource[Object],
    objects: Sequence[Object],
    columns: Sequence[Column],
    output: str,
) -> Table | None:
    """Print a list in the requested format; return the table if one was printed."""
    if output not in ("", "wide"):
        if objects or output != "name":
            _echo(formatted(resource, {"items": list(objects)}, output), output)
        return None
    chosen = [column for column in columns if output == "wide" or not column.wide]
    table = Table(chosen, objects)
    if not objects:
        terminal.echo(NONE_FOUND)
        return table
    terminal.echo(table.header())
    for obj in objects:
        terminal.echo(table.row(obj))
    return table


def formatted(resource: Resource[Object], obj: Object, output: str) -> str:
    """Print an object, or `{"items": […]}` for a list, in the format of -o."""
    listed = "items" in obj and "metadata" not in obj
    items = [with_kind(resource, item) for item in (obj["items"] if listed else [obj])]
    document = {"apiVersion": "v1", "kind": "List", "items": items} if listed else items[0]
    if output == "json":
        return json.dumps(document, indent=4, ensure_ascii=False)
    if output == "yaml":
        return as_yaml(document).rstrip("\n")
    if output == "name":
        kind = resource.kind.lower()
        prefix = f"{kind}.{resource.group}" if resource.group else kind
        return "\n".join(f"{prefix}/{item['metadata']['name']}" for item in items)
    from hekla.cli.vcctl.jsonpath import render

    return render(output.removeprefix("jsonpath="), document)


def show_object(resource: Resource[Object], obj: Object, output: str) -> None:
    _echo(formatted(resource, obj, output), output)


def _echo(text: str, output: str) -> None:
    click.echo(text, nl=not output.startswith("jsonpath="))  # a template has no implicit line break


def with_kind(resource: Resource[Object], obj: Object) -> Object:
    """Return the object with its kind and without managed fields."""
    metadata = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    return {"apiVersion": resource.api_version, "kind": resource.kind, **obj, "metadata": metadata}


def as_yaml(value: Any) -> str:
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=True))


def age(timestamp: str | None) -> str:
    """Return an age such as `2m30s`, as kubectl formats it."""
    import time

    from hekla.apiserver.tables.age import age as text

    return text(timestamp, time.time())


def age_of(obj: Object) -> str:
    return age(obj["metadata"].get("creationTimestamp"))


def field_at(obj: Object, *path: str) -> Any:
    """Return the value at `path`, or None if any part of it is unset."""
    value: Any = obj
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def number_at(*path: str) -> Callable[[Object], int]:
    """Return a cell with a number that is zero if unset."""
    return lambda obj: field_at(obj, *path) or 0


def text_at(*path: str) -> Callable[[Object], str]:
    """Return a cell with a text that is empty if unset."""
    return lambda obj: str(field_at(obj, *path) or "")


def name_of(obj: Object) -> str:
    return str(obj["metadata"].get("name", ""))


def namespace_of(obj: Object) -> str:
    return str(obj["metadata"].get("namespace", ""))

"""A Helm chart's objects without helm: the part of Go's templates that charts/hekla uses.

So there is one description of an installation, which `helm install` and `hekla install` share; a
test holds this to what helm itself renders. What a newcomer gets wrong: this is no helm. A function
or construct that is not known here is refused by name, never passed over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

Json = dict[str, Any]
Value = Any

_ACTION = re.compile(r"\{\{(-\s)?\s*(/\*.*?\*/|.*?)\s*(\s-)?\}\}", re.DOTALL)
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|:=|[()|]|[^\s()|]+')
_DOCUMENT = re.compile(r"^---\s*$", re.MULTILINE)


class ChartError(Exception):
    """A chart or values that cannot be rendered; the message says where and why."""


@dataclass(frozen=True)
class Release:
    """What the templates know of the installation."""

    name: str
    namespace: str
    service: str = "hekla"


def render(chart: Path, release: Release, values: Mapping[str, Any]) -> list[Json]:
    """The objects of the chart's templates, file by file."""
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    names = {"Name": release.name, "Namespace": release.namespace, "Service": release.service}
    root: Json = {
        "Values": merged(default_values(chart), values),
        "Release": names,
        "Chart": {key[:1].upper() + key[1:]: value for key, value in about.items()},
        "Files": {"Get": lambda name: _read_inside(chart, name)},
    }
    files = sorted((chart / "templates").glob("*.*"))
    library: dict[str, _Block] = {}
    blocks = {path: _parse(path, library) for path in files if path.suffix in (".yaml", ".tpl")}
    made: list[Json] = []
    for path, block in blocks.items():
        text = _Renderer(library, path.name).run(block, root)
        made += _documents(text, path.name)
    return made


def check_values(chart: Path, values: Mapping[str, Any]) -> None:
    """Refuse a value that the chart does not have, or of the wrong type; helm does the same."""
    import jsonschema_rs

    schema = json.loads((chart / "values.schema.json").read_text())
    for error in jsonschema_rs.validator_for(schema).iter_errors(dict(values)):
        where = ".".join(map(str, error.instance_path)) or "values"
        raise ChartError(f"{where}: {error.message}; see {chart / 'values.yaml'}")


def default_values(chart: Path) -> Json:
    found: Json = yaml.safe_load((chart / "values.yaml").read_text())
    return found


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> Json:
    """As helm: maps are merged, everything else is replaced."""
    made = dict(below)
    for key, value in above.items():
        old = made.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            made[key] = merged(old, value)
        else:
            made[key] = value
    return made


def _read_inside(chart: Path, name: str) -> str:
    path = (chart / name).resolve()
    if not path.is_relative_to(chart.resolve()):
        raise ChartError(f"{name!r} is outside of the chart; give the text itself instead")
    return path.read_text() if path.is_file() else ""


def _documents(text: str, name: str) -> Iterator[Json]:
    for part in _DOCUMENT.split(text):
        try:
            found = yaml.safe_load(part)
        except yaml.YAMLError as error:
            raise ChartError(f"{name} does not give YAML: {error}") from error
        if found:
            yield found


# --- reading -------------------------------------------------------------------------------------


@dataclass
class _Block:
    """Text and actions, in order; `other` is what stands after `else`."""

    parts: list[str | _Action] = field(default_factory=list)
    other: _Block | None = None


@dataclass
class _Action:
    word: str
    """`if`, `with`, `range`, or empty for a value that is shown."""
    words: list[str]
    body: _Block | None = None
    variable: str = ""


def _parse(path: Path, library: dict[str, _Block]) -> _Block:
    tokens = list(_tokens(path.read_text()))
    block, rest = _block(tokens, 0, library, path.name)
    if rest != len(tokens):
        raise ChartError(f"{path.name}: an `end` too many")
    return block


def _tokens(text: str) -> Iterator[str | list[str]]:
    """Text as it is, actions as lists of words; white space that an action eats is gone."""
    at, eats = 0, False
    for found in _ACTION.finditer(text):
        before = text[at : found.start()]
        before = before.lstrip() if eats else before
        yield before.rstrip() if found[1] else before
        at, eats = found.end(), bool(found[3])
        if not found[2].startswith("/*"):
            yield _WORD.findall(found[2])
    yield text[at:].lstrip() if eats else text[at:]


def _block(
    tokens: list[str | list[str]], at: int, library: dict[str, _Block], name: str
) -> tuple[_Block, int]:
    block = _Block()
    while at < len(tokens):
        token = tokens[at]
        at += 1
        if isinstance(token, str):
            block.parts.append(token)
            continue
        match token:
            case ["end"]:
                return block, at - 1
            case ["else"]:
                block.other, at = _block(tokens, at, library, name)
                return block, at
            case ["define", title]:
                library[json.loads(title)], at = _closed(tokens, at, library, name)
            case ["if" | "with" | "range" as word, *words]:
                body, at = _closed(tokens, at, library, name)
                block.parts.append(_Action(word, words, body))
            case [variable, ":=", *words] if variable.startswith("$"):
                block.parts.append(_Action("", words, variable=variable))
            case ["else" | "block" | "template", *_]:
                raise ChartError(f"{name}: `{' '.join(token)}` is not known here")
            case _:
                block.parts.append(_Action("", token))
    return block, at


def _closed(
    tokens: list[str | list[str]], at: int, library: dict[str, _Block], name: str
) -> tuple[_Block, int]:
    body, at = _block(tokens, at, library, name)
    if at >= len(tokens):
        raise ChartError(f"{name}: an `end` is missing")
    return body, at + 1


# --- working out ---------------------------------------------------------------------------------


class _Renderer:
    def __init__(self, library: Mapping[str, _Block], name: str) -> None:
        self._library = library
        self._name = name

    def run(self, block: _Block, dot: Value) -> str:
        return self._block(block, dot, {"$": dot})

    def _block(self, block: _Block, dot: Value, scope: dict[str, Value]) -> str:
        said: list[str] = []
        for part in block.parts:
            if isinstance(part, str):
                said.append(part)
            elif part.variable:
                scope[part.variable] = self._value(part.words, dot, scope)
            elif part.body is None:
                said.append(_shown(self._value(part.words, dot, scope)))
            else:
                said.append(self._branch(part, part.body, dot, scope))
        return "".join(said)

    def _branch(self, part: _Action, body: _Block, dot: Value, scope: dict[str, Value]) -> str:
        value = self._value(part.words, dot, scope)
        if not value:
            return "" if body.other is None else self._block(body.other, dot, dict(scope))
        if part.word == "range":
            return "".join(self._block(body, each, dict(scope)) for each in value)
        return self._block(body, value if part.word == "with" else dot, dict(scope))

    def _value(self, words: list[str], dot: Value, scope: dict[str, Value]) -> Value:
        rest = list(words)
        value = self._pipeline(rest, dot, scope)
        if rest:
            raise ChartError(f"{self._name}: cannot read `{' '.join(words)}`")
        return value

    def _pipeline(self, rest: list[str], dot: Value, scope: dict[str, Value]) -> Value:
        value, first = None, True
        while True:
            operands = [] if first else [value]
            call = self._command(rest, dot, scope)
            value = call(*operands) if callable(call) else call
            first = False
            if not rest or rest[0] != "|":
                return value
            rest.pop(0)

    def _command(self, rest: list[str], dot: Value, scope: dict[str, Value]) -> Value:
        """A value, or a function that waits for its last argument."""
        head, operands = self._operand(rest, dot, scope), []
        while rest and rest[0] not in ("|", ")"):
            operands.append(self._operand(rest, dot, scope))
        if not callable(head):
            if operands:
                raise ChartError(f"{self._name}: {head!r} is no function")
            return head
        return lambda *piped: head(*operands, *piped)

    def _operand(self, rest: list[str], dot: Value, scope: dict[str, Value]) -> Value:
        word = rest.pop(0)
        if word == "(":
            value = self._pipeline(rest, dot, scope)
            rest.pop(0)
            return value
        if word.startswith('"'):
            return json.loads(word)
        if re.fullmatch(r"-?\d+", word):
            return int(word)
        if word.startswith("."):
            return _path(dot, word[1:])
        if word.startswith("$"):
            variable, _, path = word.partition(".")
            if variable not in scope:
                raise ChartError(f"{self._name}: there is no variable {variable}")
            return _path(scope[variable], path)
        if word in ("true", "false"):
            return word == "true"
        if word == "include":
            return self._include
        if word not in FUNCTIONS:
            raise ChartError(f"{self._name}: the function {word!r} is not known here")
        return FUNCTIONS[word]

    def _include(self, name: str, dot: Value) -> str:
        return self.run(self._library[name], dot)


def _path(value: Value, path: str) -> Value:
    for name in filter(None, path.split(".")):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _shown(value: Value) -> str:
    """As Go prints it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _indented(width: int, text: str) -> str:
    return "\n".join(" " * width + line for line in text.split("\n"))


def _dict(*items: Value) -> Json:
    return dict(zip(items[::2], items[1::2], strict=True))


def _dig(*arguments: Value) -> Value:
    *keys, otherwise, value = arguments
    for key in keys:
        if not isinstance(value, Mapping) or key not in value:
            return otherwise
        value = value[key]
    return value


def _all(*values: Value) -> Value:
    return next((value for value in values if not value), values[-1])


def _any(*values: Value) -> Value:
    return next((value for value in values if value), values[-1])


FUNCTIONS: Final[Mapping[str, Callable[..., Value]]] = {
    "and": _all,
    "default": lambda otherwise, value=None: value or otherwise,
    "dict": _dict,
    "dig": _dig,
    "eq": lambda one, *others: any(one == other for other in others),
    "gt": lambda one, other: one > other,
    "index": lambda value, *keys: _dig(*keys, None, value),
    "int": lambda value: int(value or 0),
    "lookup": lambda *_: {},  # as `helm template`: whoever applies the objects looks
    "nindent": lambda width, text: "\n" + _indented(width, text),
    "not": lambda value: not value,
    "or": _any,
    "printf": lambda form, *values: form % tuple(map(_shown, values)),
    "quote": lambda value: json.dumps(_shown(value), ensure_ascii=False),
    "toYaml": lambda value: yaml.safe_dump(value, width=10_000).rstrip("\n"),
}

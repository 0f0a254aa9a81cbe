"""Read YAML from untrusted sources: size, depth, nodes and aliases are limited.

    objects = load_all(text, FILE)

The values have JSON's types, and keys of maps are strings, as in Kubernetes (sigs.k8s.io/yaml).

Note: libyaml's composer is recursive in C: a document of 60,000 brackets overflows the stack and
kills the process. So values are built here from libyaml's events, which need no recursion. No other
module may call a loader of PyYAML.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import yaml

from hekla.units.documents import MAX_DEPTH

__all__ = ["BODY", "CONFIG", "FILE", "Duplicate", "Limits", "YAMLError", "compose", "load",
           "load_all", "load_all_with_duplicates", "load_with_duplicates", "plain"]  # fmt: skip

YAMLError = yaml.YAMLError


@dataclass(frozen=True, slots=True)
class Limits:
    """What a text may hold. Aliases are counted expanded: ten lines can stand for gigabytes."""

    size: int
    """Bytes of the text, and characters of all scalars with aliases expanded."""
    nodes: int
    """Scalars, lists and maps, with aliases expanded."""
    depth: int = MAX_DEPTH
    aliases: bool = True


BODY: Final = Limits(size=3 << 20, nodes=50_000, aliases=False)
"""A request. kube-apiserver accepts 3 MiB. A node costs microseconds, so a client with more of them
sends JSON."""
FILE: Final = Limits(size=64 << 20, nodes=2_000_000)
"""A file named on the command line, with any number of documents."""
CONFIG: Final = Limits(size=4 << 20, nodes=100_000, depth=64)
"""A configuration file or ConfigMap."""

MAX_DUPLICATES: Final = 100
_MAX_PLAIN: Final = 128
"""Longer plain scalars are text: no number has as many digits, and huge ones cost
quadratic time."""
_SHOWN_KEY: Final = 200

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG: Final = "tag:yaml.org,2002:"
_MERGE: Final = _TAG + "merge"
# Times stay text, as in JSON.
_RESOLVERS: Final = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != _TAG + "timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_BOOLEANS: Final = yaml.SafeLoader.bool_values
_INT64: Final = range(-(1 << 63), 1 << 64)


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A key that a map has twice."""

    path: str
    key: str
    line: int
    """The line of the later one."""


class _Limited(yaml.MarkedYAMLError):
    pass


def load(text: str | bytes, limits: Limits) -> Any:
    """Return the value of a text with at most one document."""
    return load_with_duplicates(text, limits)[0]


def load_with_duplicates(text: str | bytes, limits: Limits) -> tuple[Any, list[Duplicate]]:
    """Return the value, and the duplicate keys of its maps; the last one wins."""
    builder = _Builder(text, limits)
    documents = list(builder.documents())
    if len(documents) > 1:
        raise YAMLError(f"expected one document, found {len(documents)}; split the text")
    return documents[0] if documents else None, builder.duplicates


def load_all(text: str | bytes, limits: Limits) -> list[Any]:
    """Return the values of all documents."""
    return list(_Builder(text, limits).documents())


def load_all_with_duplicates(
    text: str | bytes, limits: Limits
) -> tuple[list[Any], list[Duplicate]]:
    """Return the values of all documents, and the duplicate keys of their maps."""
    builder = _Builder(text, limits)
    return list(builder.documents()), builder.duplicates


def compose(text: str, limits: Limits) -> yaml.Node | None:
    """Return the node tree, which has line numbers."""
    load(text, limits)
    root: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    return root


def plain(node: yaml.Node) -> Any:
    """Return the value of a node of `compose`."""
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_document(node)
    finally:
        loader.dispose()


class _Frame:
    """An open list or map."""

    __slots__ = ("anchor", "chars", "is_map", "key", "key_event", "merged", "nodes", "value")

    def __init__(self, value: Any, anchor: str | None, nodes: int, chars: int) -> None:
        self.value = value
        self.is_map = value.__class__ is dict
        self.anchor = anchor
        self.nodes = nodes
        self.chars = chars
        self.key: str | None = None
        self.key_event: Any = None
        self.merged: dict[str, Any] | None = None


class _MergeKey(str):
    """The key `<<`: the value's entries belong to the map."""


class _Builder:
    def __init__(self, text: str | bytes, limits: Limits) -> None:
        try:
            encoded = text if isinstance(text, bytes) else text.encode()
        except UnicodeEncodeError as error:
            raise YAMLError(f"the text is not Unicode: {error.reason}") from error
        if len(encoded) > limits.size:
            raise YAMLError(
                f"the text has {len(encoded)} bytes, {limits.size} are allowed; split it"
            )
        self._text = encoded
        self._limits = limits
        self._nodes = self._chars = 0
        self._frames: list[_Frame] = []
        self._anchors: dict[str, tuple[Any, int, int]] = {}
        self.duplicates: list[Duplicate] = []

    def documents(self) -> Iterator[Any]:
        """Yield the value of each document."""
        top: list[Any] = []
        frames = self._frames
        for event in yaml.parse(self._text, Loader=_Loader):
            kind = event.__class__
            if kind is yaml.ScalarEvent:
                self._count(event, 1, len(event.value))
                value = self._key_or_scalar(event)
                if event.anchor is not None:
                    self._anchors[event.anchor] = value, 1, len(event.value)
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                self._open(event, {} if kind is yaml.MappingStartEvent else [])
                continue
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                value = self._close()
            elif kind is yaml.AliasEvent:
                value = self._alias(event)
            else:
                if kind is yaml.DocumentEndEvent:
                    self._anchors.clear()
                    yield top.pop()
                continue
            if frames:
                self._add(event, frames[-1], value)
            else:
                top.append(value)

    def _open(self, event: Any, value: Any) -> None:
        self._count(event, 1, 0)
        if event.tag not in (None, "!", _TAG + "map", _TAG + "seq"):
            raise _refusal(event, f"the tag {event.tag!r} is not supported; write a plain value")
        if len(self._frames) >= self._limits.depth:
            raise _refusal(
                event, f"lists and maps are nested deeper than {self._limits.depth} levels; flatten"
            )
        if self._frames and self._frames[-1].is_map and self._frames[-1].key is None:
            raise _refusal(event, "a list or map is no key; a key must be text")
        self._frames.append(_Frame(value, event.anchor, self._nodes - 1, self._chars))

    def _close(self) -> Any:
        frame = self._frames.pop()
        value = frame.value
        if frame.merged is not None:
            value = {**frame.merged, **value}
        if frame.anchor is not None:
            cost = self._nodes - frame.nodes, self._chars - frame.chars
            self._anchors[frame.anchor] = value, *cost
        return value

    def _alias(self, event: Any) -> Any:
        if not self._limits.aliases:
            raise _refusal(event, "aliases are not accepted; write the value out")
        found = self._anchors.get(event.anchor)
        if found is None:
            raise _refusal(event, f"the alias {event.anchor!r} has no finished anchor before it")
        value, nodes, chars = found
        self._count(event, nodes, chars)
        if self._depth_of(value) + len(self._frames) > self._limits.depth:
            raise _refusal(
                event, f"aliases are nested deeper than {self._limits.depth} levels; flatten"
            )
        return value

    def _depth_of(self, value: Any) -> int:
        depth, level = 0, [value]
        while level := [each for each in level if each.__class__ in (dict, list)]:
            depth += 1
            level = [
                item
                for each in level
                for item in (each.values() if each.__class__ is dict else each)
            ]
        return depth

    def _add(self, event: Any, frame: _Frame, value: Any) -> None:
        if not frame.is_map:
            frame.value.append(value)
        elif frame.key is None:
            frame.key = value if value.__class__ in (str, _MergeKey) else _key(event, value)
            frame.key_event = event
        elif frame.key.__class__ is _MergeKey:
            frame.merged = _merge(event, frame.merged, value)
            frame.key = None
        else:
            if frame.key in frame.value and len(self.duplicates) < MAX_DUPLICATES:
                line = frame.key_event.start_mark.line + 1
                self.duplicates.append(Duplicate(self._path(), frame.key[:_SHOWN_KEY], line))
            frame.value[frame.key] = value
            frame.key = None

    def _path(self) -> str:
        parts = []
        for frame in self._frames:
            parts.append(
                f".{(frame.key or '')[:_SHOWN_KEY]}" if frame.is_map else f"[{len(frame.value)}]"
            )
        return "".join(parts).removeprefix(".")

    def _key_or_scalar(self, event: Any) -> Any:
        value = event.value
        if not event.implicit[0]:
            if event.implicit[1] or event.tag in ("!", _TAG + "str"):
                return value
            return _tagged(event)
        if len(value) > _MAX_PLAIN:
            return value
        for tag, regexp in _RESOLVERS.get(value[:1], ()):
            if regexp.match(value):
                if tag == _MERGE:
                    is_key = self._frames and self._frames[-1].is_map and not self._frames[-1].key
                    return _MergeKey(value) if is_key else value
                return _converted(event, tag, value)
        return value

    def _count(self, event: Any, nodes: int, chars: int) -> None:
        self._nodes += nodes
        self._chars += chars
        if self._nodes > self._limits.nodes:
            raise _refusal(
                event,
                f"the text has more than {self._limits.nodes} values, aliases expanded; "
                "split it, or write JSON",
            )
        if self._chars > self._limits.size:
            raise _refusal(
                event, f"the text stands for more than {self._limits.size} characters; split it"
            )


def _converted(event: Any, tag: str, text: str) -> Any:
    match tag.removeprefix(_TAG):
        case "null":
            return None
        case "bool":
            return _BOOLEANS[text.lower()]
        case "int":
            return text if ":" in text else _integer(text)  # base 60 is text, as in Go
        case "float":
            return text if ":" in text else _number(event, text)
        case "str":
            return text
    return text  # "=" is YAML 1.1's default value; as text it does no harm


def _tagged(event: Any) -> Any:
    """Return a scalar with an explicit tag, such as `!!int "3"`."""
    tag, text = event.tag, event.value[:_MAX_PLAIN]
    try:
        if tag in (_TAG + "null", _TAG + "bool", _TAG + "int", _TAG + "float"):
            return _converted(event, tag, text)
    except (KeyError, ValueError):
        raise _refusal(event, f"{text!r} is no value of the tag {tag!r}") from None
    raise _refusal(event, f"the tag {tag!r} is not supported; write a plain value")


def _integer(text: str) -> int | float:
    digits = text.replace("_", "").lower()
    sign = -1 if digits.startswith("-") else 1
    digits = digits.lstrip("+-")
    if digits.startswith("0b"):
        value = int(digits[2:], 2)
    elif digits.startswith("0x"):
        value = int(digits[2:], 16)
    else:
        value = int(digits, 8 if digits.startswith("0") and digits != "0" else 10)
    value *= sign
    return value if value in _INT64 else float(value)  # as JSON's numbers in Go


def _number(event: Any, text: str) -> float:
    digits = text.replace("_", "").lower()
    value = float("nan") if digits == ".nan" else float(digits.replace(".inf", "inf"))
    if not math.isfinite(value):
        raise _refusal(event, f"{text!r} is no number of JSON; write a finite one")
    return value


def _key(event: Any, value: Any) -> str:
    """Return a key as text: `1` and `true` too, as in Kubernetes."""
    if value is None or value.__class__ in (dict, list):
        raise _refusal(event, "a key must be text")
    return msgspec.json.encode(value).decode()


def _merge(event: Any, merged: dict[str, Any] | None, value: Any) -> dict[str, Any]:
    found = dict(merged or {})
    for source in value if value.__class__ is list else [value]:
        if source.__class__ is not dict:
            raise _refusal(event, "<< needs a map or a list of maps")
        for key, item in source.items():
            found.setdefault(key, item)  # the first source wins
    return found


def _refusal(event: Any, problem: str) -> _Limited:
    return _Limited(problem=problem, problem_mark=event.start_mark)

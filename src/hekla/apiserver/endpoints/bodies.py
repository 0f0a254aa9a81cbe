"""Decode request bodies: JSON, YAML and protobuf; detect duplicate fields if requested."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from hekla.apiserver import errors
from hekla.apiserver.endpoints import protobuf

if TYPE_CHECKING:
    from hekla.apiserver.registry.options import Options

JSON = "application/json"
YAML = "application/yaml"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(body: bytes, content_type: str, options: Options | None) -> Any:
    """Decode a body; with field validation Warn or Strict, also find duplicate fields."""
    media = content_type.partition(";")[0].strip() or JSON
    if media == JSON:
        value = _read_json(body)
        if options is not None and options.find_duplicates:
            _record_duplicates(_json_duplicates(body), options)
    elif media in (YAML, "text/yaml", "application/x-yaml"):
        if body.lstrip()[:1] == b"{":
            # Clients send JSON as YAML. The JSON decoder is faster and handles surrogate pairs;
            # flow style that is not JSON ({a: b}) is decoded as YAML.
            with contextlib.suppress(errors.StatusError):
                return read(body, JSON, options)
        value = _read_yaml(body)
        if options is not None and options.find_duplicates:
            _record_duplicates(_yaml_duplicates(body), options)
    elif media == protobuf.MEDIA_TYPE:
        value = protobuf.read(body)
    else:
        raise errors.unsupported_media(media, (JSON, YAML, protobuf.MEDIA_TYPE))
    return value


def _read_json(body: bytes) -> Any:
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise errors.bad_request(f"the body is not valid JSON: {error}") from error
    return value


def _read_yaml(body: bytes) -> Any:
    try:
        if b"*" in body and b"&" in body:
            _forbid_aliases(body)
        value = yaml.load(body, Loader=_JsonLoader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise errors.bad_request(f"the body is not valid YAML: {error}") from error
    return value


class _JsonLoader(_Loader):  # type: ignore[misc]
    """YAML restricted to JSON's types: times stay strings."""


_JsonLoader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}


def _forbid_aliases(body: bytes) -> None:
    """Refuse aliases: ten lines with nested aliases can expand beyond the memory."""
    if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(body, Loader=_JsonLoader)):
        raise yaml.YAMLError("aliases are not accepted; write the value out")


# Duplicate fields need a second pass over the body, so only on request.


def _record_duplicates(paths: list[str], options: Options) -> None:
    """Record duplicate fields; `decoding` reports them together with unknown fields."""
    options.duplicates = [f'duplicate field "{path}"' for path in dict.fromkeys(paths)]


def _json_duplicates(body: bytes) -> list[str]:
    """Return paths of duplicate fields. The parser returns inner objects first."""
    below: dict[int, tuple[Any, list[str]]] = {}

    def paths_in(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            for path in below.get(id(value), (None, []))[1]:
                yield f".{path}"
        elif isinstance(value, list):
            for index, item in enumerate(value):
                yield from (f"[{index}]{path}" for path in paths_in(item))

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(items)
        duplicates = [f"{name}{path}" for name, value in items if below for path in paths_in(value)]
        if len(made) != len(items):
            names = [name for name, _ in items]
            duplicates += [name for index, name in enumerate(names) if name in names[:index]]
        if duplicates:
            below[id(made)] = made, duplicates  # keep a reference, so that the id stays unique
        return made

    top = json.loads(body, object_pairs_hook=pairs)
    return [path.removeprefix(".") for path in paths_in(top)]


def refuse_duplicates(body: bytes) -> None:
    """Refuse duplicate fields of a YAML document by line, as upstream."""
    messages: list[str] = []

    def walk(node: Any) -> None:
        if isinstance(node, yaml.SequenceNode):
            for item in node.value:
                walk(item)
        elif isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                if key.value in seen:
                    line = key.start_mark.line + 1
                    messages.append(f'line {line}: key "{key.value}" already set in map')
                seen.add(key.value)
                walk(value)

    walk(yaml.compose(body, Loader=_JsonLoader))
    if messages:
        listed = "\n  ".join(messages)
        raise errors.bad_request(f"error decoding YAML: yaml: unmarshal errors:\n  {listed}")


def _yaml_duplicates(body: bytes) -> list[str]:
    def walk(node: Any, path: str) -> Iterator[str]:
        if isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                yield from walk(item, f"{path}[{index}]")
        elif isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                where = f"{path}.{key.value}" if path else str(key.value)
                if key.value in seen:
                    yield where
                seen.add(key.value)
                yield from walk(value, where)

    return list(walk(yaml.compose(body, Loader=_JsonLoader), ""))


def check_patch_type(media: str, *, custom: bool) -> None:
    accepted = [JSON_PATCH, MERGE_PATCH, APPLY]
    if not custom:
        accepted.insert(2, STRATEGIC)
    if media not in accepted:
        refusal = errors.unsupported_media(media, accepted)
        refusal.details = None if custom else {}  # as upstream, which has two kinds of errors
        raise refusal


def read_patch(body: bytes, media: str) -> Any:
    """Return the content of a patch other than apply."""
    patch = _read_json(body)
    if media == JSON_PATCH:
        if not isinstance(patch, list):
            raise errors.bad_request("a JSON patch is a list of operations")
    elif not isinstance(patch, dict):
        raise errors.bad_request("a merge patch is a JSON object")
    return patch


def to_yaml(body: bytes) -> bytes:
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(msgspec.json.decode(body), Dumper=dumper, sort_keys=True)
    return text.encode()

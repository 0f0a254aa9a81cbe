"""Request bodies to objects: JSON, YAML and protobuf, with duplicate fields noticed on request."""

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
    """Decode a body. With field validation Warn or Strict, repeated fields are found as well."""
    media = content_type.partition(";")[0].strip() or JSON
    if media == JSON:
        value = _read_json(body)
        if options is not None and options.find_duplicates:
            _note_duplicates(_repeated_in_json(body), options)
    elif media in (YAML, "text/yaml", "application/x-yaml"):
        if body.lstrip()[:1] == b"{":
            # Clients send JSON as the YAML it also is. JSON's reader is faster, and knows pairs of
            # surrogates; what only YAML can say in braces ({a: b}) goes the long way round.
            with contextlib.suppress(errors.StatusError):
                return read(body, JSON, options)
        value = _read_yaml(body)
        if options is not None and options.find_duplicates:
            _note_duplicates(_repeated_in_yaml(body), options)
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
    """YAML restricted to what JSON can say: times stay text."""


_JsonLoader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}


def _forbid_aliases(body: bytes) -> None:
    """Ten lines of YAML with aliases of aliases can stand for more than fits into memory."""
    if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(body, Loader=_JsonLoader)):
        raise yaml.YAMLError("aliases are not accepted; write the value out")


# Fields given twice: found by a second look at the body, so only for those who ask.


def _note_duplicates(paths: list[str], options: Options) -> None:
    """For `intake`, which tells of them together with unknown fields."""
    options.duplicates = [f'duplicate field "{path}"' for path in dict.fromkeys(paths)]


def _repeated_in_json(body: bytes) -> list[str]:
    """Paths of repeated fields. The parser hands out inner objects first: paths grow outwards."""
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
        found = [f"{name}{path}" for name, value in items if below for path in paths_in(value)]
        if len(made) != len(items):
            names = [name for name, _ in items]
            found += [name for index, name in enumerate(names) if name in names[:index]]
        if found:
            below[id(made)] = made, found  # kept, so that nothing else can get its id
        return made

    top = json.loads(body, object_pairs_hook=pairs)
    return [path.removeprefix(".") for path in paths_in(top)]


def refuse_repeated(body: bytes) -> None:
    """Fields given twice in a YAML document are told by line, as upstream's reader does."""
    told: list[str] = []

    def walk(node: Any) -> None:
        if isinstance(node, yaml.SequenceNode):
            for item in node.value:
                walk(item)
        elif isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                if key.value in seen:
                    line = key.start_mark.line + 1
                    told.append(f'line {line}: key "{key.value}" already set in map')
                seen.add(key.value)
                walk(value)

    walk(yaml.compose(body, Loader=_JsonLoader))
    if told:
        listed = "\n  ".join(told)
        raise errors.bad_request(f"error decoding YAML: yaml: unmarshal errors:\n  {listed}")


def _repeated_in_yaml(body: bytes) -> list[str]:
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
        refusal.details = None if custom else {}  # as upstream, which has two ways to refuse
        raise refusal


def read_patch(body: bytes, media: str) -> Any:
    """The content of a patch that is not an apply."""
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

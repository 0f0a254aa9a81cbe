"""Request bodies to objects: JSON, YAML and protobuf, with duplicate fields noticed on request."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from hekla.apiserver import errors, protobuf

if TYPE_CHECKING:
    from hekla.apiserver.resources import Options

JSON = "application/json"
YAML = "application/yaml"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

# Deep nesting is never legitimate and costs recursion everywhere.
MAX_DEPTH = 120

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(body: bytes, content_type: str, options: Options | None) -> Any:
    """Decode a body. With field validation Warn or Strict, repeated fields are found as well."""
    media = content_type.partition(";")[0].strip() or JSON
    if media == JSON:
        value = _read_json(body)
        if options is not None and options.find_duplicates:
            _note_duplicates(body, options)
    elif media in (YAML, "text/yaml", "application/x-yaml"):
        value = _read_yaml(body)
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
        # Timestamps and the like must stay what JSON knows: strings.
        value = yaml.load(body, Loader=_JsonLoader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise errors.bad_request(f"the body is not valid YAML: {error}") from error
    return value


class _JsonLoader(_Loader):  # type: ignore[misc]
    """YAML restricted to what JSON can say; no timestamps, no aliases that explode."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not accepted; write the value out")
        return super().compose_node(parent, index)


_JsonLoader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}


def _note_duplicates(body: bytes, options: Options) -> None:
    """Find fields given twice: a second parse, so only for those who ask."""
    repeated: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(items)
        if len(made) != len(items):
            seen: set[str] = set()
            for name, _ in items:
                if name in seen:
                    repeated.append(name)
                seen.add(name)
        return made

    json.loads(body, object_pairs_hook=pairs)
    if not repeated:
        return
    told = [f'duplicate field "{name}"' for name in dict.fromkeys(repeated)]
    if options.field_validation == "Strict":
        raise errors.bad_request("strict decoding error: " + ", ".join(told))
    options.warnings += told


def read_patch(body: bytes, media: str, *, custom: bool) -> Any:
    """The content of a patch that is not an apply."""
    accepted = [JSON_PATCH, MERGE_PATCH, APPLY]
    if not custom:
        accepted.insert(2, STRATEGIC)
    if media not in accepted:
        raise errors.unsupported_media(media, accepted)
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

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
from hekla.units import bounded_yaml
from hekla.units.documents import MAX_DEPTH, is_text_too_deep, is_too_deep

if TYPE_CHECKING:
    from hekla.apiserver.registry.options import Options

JSON = "application/json"
YAML = "application/yaml"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

_SHOWN_KEY = 200


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
            with contextlib.suppress(_NotJson):
                return read(body, JSON, options)
        value, duplicates = _read_yaml(body)
        if options is not None and options.find_duplicates:
            _record_duplicates([duplicate.path for duplicate in duplicates], options)
    elif media == protobuf.MEDIA_TYPE:
        value = protobuf.read(body)
        _refuse_deep(is_too_deep(value))
    else:
        raise errors.unsupported_media(media, (JSON, YAML, protobuf.MEDIA_TYPE))
    return value


class _NotJson(errors.StatusError):
    pass


def _read_json(body: bytes) -> Any:
    try:
        value = msgspec.json.decode(body)
    except RecursionError:
        value, too_deep = None, True
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"the body is not valid JSON: {error}"
        raise _NotJson(400, "BadRequest", message) from error
    else:
        too_deep = is_text_too_deep(body, value)
    _refuse_deep(too_deep)
    return value


def _refuse_deep(is_deep: bool) -> None:
    """Refuse deep bodies here, so that every recursive walk behind is bounded."""
    if is_deep:
        raise errors.bad_request(
            f"the body is nested deeper than {MAX_DEPTH} levels; flatten the object"
        )


def _read_yaml(body: bytes) -> tuple[Any, list[bounded_yaml.Duplicate]]:
    try:
        return bounded_yaml.load_with_duplicates(body, bounded_yaml.BODY)
    except bounded_yaml.YAMLError as error:
        raise errors.bad_request(f"the body is not valid YAML: {error}") from error


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
        duplicates: list[str] = []
        if below:
            duplicates = [
                f"{name[:_SHOWN_KEY]}{path}" for name, value in items for path in paths_in(value)
            ]
        if len(made) != len(items):
            seen: set[str] = set()
            for name, _ in items:
                if name in seen:
                    duplicates.append(name[:_SHOWN_KEY])
                seen.add(name)
        if duplicates:
            # The reference keeps the id unique. Every level copies the paths: limit them.
            below[id(made)] = made, duplicates[: bounded_yaml.MAX_DUPLICATES]
        return made

    top = json.loads(body, object_pairs_hook=pairs)
    return [path.removeprefix(".") for path in paths_in(top)]


def refuse_duplicates(body: bytes) -> None:
    """Refuse duplicate fields of a YAML document by line, as upstream."""
    duplicates = _read_yaml(body)[1]
    if duplicates:
        listed = "\n  ".join(
            f'line {each.line}: key "{each.key}" already set in map' for each in duplicates
        )
        raise errors.bad_request(f"error decoding YAML: yaml: unmarshal errors:\n  {listed}")


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

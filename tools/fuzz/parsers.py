"""All parsers of client input, as functions of bytes.

A target returns, or raises an error that its callers turn into a rejection. Any other exception is
a finding: it would be a 500.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from random import Random

from hekla.apiserver import cel
from hekla.apiserver.endpoints import bodies, protobuf
from hekla.apiserver.errors import StatusError
from hekla.apiserver.registry.options import Options
from hekla.apiserver.request_info import (
    Query,
    parse_accept,
    parse_request_info,
    parse_revision,
)
from hekla.apiserver.schema.kinds import Registry
from hekla.apiserver.storage import pagination
from hekla.units import apply, patches
from hekla.units.cron import CronError, parse_cron
from hekla.units.durations import parse_duration
from hekla.units.errors import FieldSetError, SelectorError
from hekla.units.fieldsets import check_fields, decode_fields
from hekla.units.jsonpath import PathError, compile_path
from hekla.units.quantity import QuantityError, parse_quantity
from hekla.units.selectors import LabelSelector, parse_field_selector, parse_label_selector
from hekla.units.timestamps import TimestampError, parse_time
from tools.fuzz.mutate import mutate_bytes
from tools.fuzz.seeds import DEPLOYMENT, PATCHES, POD, TEXTS, encoded

Target = Callable[[bytes], None]
_registry = Registry()
_pods = _registry.by_kind("v1", "Pod")
assert _pods is not None
_shape = _pods.shape


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def json_body(data: bytes) -> None:
    with contextlib.suppress(StatusError):
        value = bodies.read(data, bodies.JSON, Options(find_duplicates=True))
        assert _pods is not None
        _pods.structural_schema.check(value if isinstance(value, dict) else {"spec": value})


def yaml_body(data: bytes) -> None:
    with contextlib.suppress(StatusError):
        bodies.read(data, bodies.YAML, Options(find_duplicates=True))


def protobuf_body(data: bytes) -> None:
    with contextlib.suppress(StatusError):
        protobuf.read(protobuf.MAGIC + data)


def json_patch(data: bytes) -> None:
    with contextlib.suppress(StatusError, patches.PatchError):
        patches.json_patch(POD, bodies.read_patch(data, bodies.JSON_PATCH))


def merge_patch(data: bytes) -> None:
    with contextlib.suppress(StatusError, patches.PatchError):
        patches.merge_patch(POD, bodies.read_patch(data, bodies.MERGE_PATCH))


def strategic_patch(data: bytes) -> None:
    with contextlib.suppress(StatusError, patches.PatchError):
        patches.strategic_merge_patch(POD, bodies.read_patch(data, bodies.STRATEGIC), _shape)


def apply_patch(data: bytes) -> None:
    with contextlib.suppress(StatusError, apply.ApplyError):
        given = bodies.read(data, bodies.YAML, None)
        apply.apply(
            POD,
            given,
            manager="m",
            force=False,
            shape=_shape,
            api_version="v1",
            now="2026-01-01T00:00:00Z",
            subresource="",
            ignored=(),
        )


def managed_fields(data: bytes) -> None:
    with contextlib.suppress(FieldSetError, StatusError):
        decode_fields(check_fields(bodies.read(data, bodies.JSON, None)))


def labels(data: bytes) -> None:
    with contextlib.suppress(SelectorError):
        parse_label_selector(_text(data)).matches({"app": "web"})


def label_object(data: bytes) -> None:
    with contextlib.suppress(SelectorError, StatusError):
        value = bodies.read(data, bodies.JSON, None)
        if isinstance(value, dict):
            LabelSelector.from_dict(value)


def fields(data: bytes) -> None:
    with contextlib.suppress(SelectorError):
        parse_field_selector(_text(data))


def quantity(data: bytes) -> None:
    with contextlib.suppress(QuantityError):
        str(parse_quantity(_text(data)))


def times(data: bytes) -> None:
    with contextlib.suppress(TimestampError):
        parse_time(_text(data))
    with contextlib.suppress(ValueError):
        parse_duration(_text(data))


def cron(data: bytes) -> None:
    with contextlib.suppress(CronError):
        parse_cron(_text(data))


def json_path(data: bytes) -> None:
    with contextlib.suppress(PathError):
        compile_path(_text(data))


def expression(data: bytes) -> None:
    if cel.is_available():
        with contextlib.suppress(cel.Refused, cel.Failed):
            cel.compile(_text(data), ["self"])


def versions(data: bytes) -> None:
    with contextlib.suppress(StatusError):
        pagination._decode_token(_text(data))
    with contextlib.suppress(StatusError):
        parse_revision(_text(data))


def address(data: bytes) -> None:
    path, _, query = data.partition(b"?")
    with contextlib.suppress(StatusError):
        parse_request_info("GET", _text(path), Query.parse(query).values)
    with contextlib.suppress(StatusError):
        parse_accept(_text(data))


TARGETS: dict[str, Target] = {
    target.__name__: target
    for target in (
        json_body,
        yaml_body,
        protobuf_body,
        json_patch,
        merge_patch,
        strategic_patch,
        apply_patch,
        managed_fields,
        labels,
        label_object,
        fields,
        quantity,
        times,
        cron,
        json_path,
        expression,
        versions,
        address,
    )
}
_BODIES = [encoded(POD), encoded(DEPLOYMENT)]
_DOCUMENTS = ("json_body", "yaml_body", "apply_patch", "managed_fields", "label_object")


def seeds_of(name: str) -> list[bytes]:
    if name.endswith("_patch"):
        return [*map(encoded, PATCHES), *_BODIES[:1]]
    return _BODIES if name in _DOCUMENTS else [text.encode() for text in TEXTS]


class Finding(AssertionError):
    """A target raised an unexpected error; the text contains the input."""


def run(name: str, rounds: int, seed: int) -> int:
    """Run a target on mutations of valid inputs; return the number of inputs."""
    random, target, pool = Random(f"{name}/{seed}"), TARGETS[name], seeds_of(name)
    for _ in range(rounds):
        data = mutate_bytes(random.choice(pool), random)
        try:
            target(data)
        except Exception as error:
            kind = type(error).__name__
            raise Finding(f"{name}: {kind}: {error}\ninput: {data[:2000]!r}") from error
        if random.random() < 0.05:
            pool = [*pool[-40:], data]
    return rounds

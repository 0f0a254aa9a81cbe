"""Go writes an empty list, map or struct as null where a field lacks `omitempty`.

Null reads as absent in every model, at every depth, in a single object, a list and a watch.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import hekla.api
from hekla.api import core, meta
from hekla.api.meta import Model
from hekla.kube import responses
from hekla.kube.errors import ProtocolError


def _models() -> list[type[Model]]:
    for module in pkgutil.walk_packages(hekla.api.__path__, "hekla.api."):
        importlib.import_module(module.name)
    found: dict[str, type[Model]] = {}

    def collect(kind: type[Model]) -> None:
        for each in kind.__subclasses__():
            if each.__module__.startswith("hekla.api."):  # other packages may be imported or not
                found[f"{each.__module__}.{each.__qualname__}"] = each
            collect(each)

    collect(Model)
    return [found[name] for name in sorted(found)]


MODELS = _models()


def _sample(kind: msgspec.inspect.Type, depth: int) -> Any:
    """Return a value of a type, in which every list has one element; None if there is none."""
    inspect = msgspec.inspect
    match kind:
        case inspect.StructType(cls=cls):
            return _filled(cls, depth - 1) if depth else {}
        case inspect.VarTupleType() | inspect.ListType():
            item = _sample(kind.item_type, depth)
            return [] if item is None else [item]
        case inspect.DictType():
            item = _sample(kind.value_type, depth)
            return {} if item is None else {"key": item}
        case inspect.UnionType():
            samples = [_sample(each, depth) for each in kind.types]
            return next((each for each in samples if each is not None), None)
        case inspect.StrType():
            return "1"
        case inspect.IntType() | inspect.FloatType():
            return 1
        case inspect.BoolType():
            return True
    return None


def _filled(model: type[msgspec.Struct], depth: int) -> dict[str, Any]:
    made = {}
    for field in msgspec.inspect.type_info(model).fields:  # type: ignore[attr-defined]
        value = _sample(field.type, depth)
        if value is not None:
            made[field.encode_name] = value
    return made


def _with_one_null(value: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield each way to replace one field by null, with the same value without the field."""
    if isinstance(value, dict):
        for name, inner in value.items():
            where = f"{path}.{name}"
            rest = {key: each for key, each in value.items() if key != name}
            yield where, {**rest, name: None}, rest
            for deeper, null, absent in _with_one_null(inner, where):
                yield deeper, {**rest, name: null}, {**rest, name: absent}
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            before, after = value[:index], value[index + 1 :]
            for deeper, null, absent in _with_one_null(inner, f"{path}[{index}]"):
                yield deeper, [*before, null, *after], [*before, absent, *after]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__qualname__)
def test_null_reads_as_absent_in_every_field_of_every_model(model: type[Model]) -> None:
    full = _filled(model, 2)
    assert meta.convert(full, model), f"the sample of {model} does not decode"
    for where, null, absent in _with_one_null(full):
        want = meta.convert(absent, model)
        assert meta.decode(msgspec.json.encode(null), model) == want, where
        assert responses.decode(model, msgspec.json.encode(null), "law") == want, where


def test_the_law_covers_the_models() -> None:
    assert len(MODELS) > 150
    assert core.CSINode in MODELS


def test_a_list_with_one_null_field_is_read_whole() -> None:
    body = (
        b'{"kind":"CSINodeList","apiVersion":"storage.k8s.io/v1","metadata":{"resourceVersion":"7"},'
        b'"items":[{"metadata":{"name":"a"},"spec":{"drivers":null}},'
        b'{"metadata":{"name":"b"},"spec":{"drivers":[{"name":"csi","nodeID":"n"}]}}]}'
    )
    listed = responses.decode_list(core.CSINode, body, "GET csinodes")
    assert [(node.name, len(node.spec.drivers)) for node in listed] == [("a", 0), ("b", 1)]


def test_a_watch_event_with_a_null_field_is_read() -> None:
    reader = responses.WatchReader(core.CSINode, "1", "watch csinodes")
    line = b'{"type":"ADDED","object":{"metadata":{"name":"a"},"spec":{"drivers":null}}}\n'
    (event,) = reader.feed(line)
    assert (event.object.name, event.object.spec.drivers) == ("a", ())


def test_a_value_of_the_wrong_type_is_still_refused() -> None:
    body = b'{"metadata":{"name":"a"},"spec":{"drivers":"none"}}'
    with pytest.raises(ProtocolError, match=r"spec\.drivers"):
        responses.decode(core.CSINode, body, "GET csinode")

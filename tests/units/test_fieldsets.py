"""Field sets: the fieldsV1 format, and set operations compared with sets of paths."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.units.fieldsets import (
    FieldSet,
    FieldSetError,
    Path,
    check_fields,
    decode_fields,
    encode_fields,
    field_path,
    intersect,
    key_element,
    subtract,
    union,
    value_element,
)

elements = st.one_of(
    st.sampled_from(["f:a", "f:b", "f:c"]),
    st.sampled_from(['k:{"name":"x"}', 'k:{"name":"y"}', 'v:"z"', "v:1", "i:0"]),
)
paths = st.lists(elements, min_size=1, max_size=4).map(tuple)
path_sets = st.frozensets(paths, max_size=8)


def test_notation_of_members_and_trees() -> None:
    fields = {
        "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
        "f:spec": {"f:replicas": {}, "f:list": {'k:{"name":"a"}': {".": {}, "f:name": {}}}},
    }
    assert decode_fields(fields) == {
        ("f:metadata", "f:labels"),
        ("f:metadata", "f:labels", "f:app"),
        ("f:spec", "f:replicas"),
        ("f:spec", "f:list", 'k:{"name":"a"}'),
        ("f:spec", "f:list", 'k:{"name":"a"}', "f:name"),
    }


@given(path_sets)
def test_encoded_set_decodes_to_the_same_paths(members: frozenset[Path]) -> None:
    fields = encode_fields(members)
    assert decode_fields(fields) == members
    assert check_fields(fields) == fields


@given(path_sets, path_sets)
def test_operations_are_those_of_sets(left: frozenset[Path], right: frozenset[Path]) -> None:
    a, b = encode_fields(left), encode_fields(right)
    assert union(a, b) == encode_fields(left | right)
    assert subtract(a, b) == encode_fields(left - right)
    assert intersect(a, b) == encode_fields(left & right)
    assert (a, b) == (encode_fields(left), encode_fields(right))  # arguments are unchanged


@given(path_sets, path_sets)
def test_an_unchanged_result_is_the_argument_itself(
    left: frozenset[Path], right: frozenset[Path]
) -> None:
    a = encode_fields(left)
    if not left & right:
        assert subtract(a, encode_fields(right)) is a
    if right and right <= left:
        assert union(a, encode_fields(right)) is a


def test_elements_are_normalized() -> None:
    assert value_element("a") == 'v:"a"'
    assert value_element(80.0) == value_element(80) == "v:80"
    assert value_element(True) == "v:true"
    assert value_element("größe") == 'v:"größe"'
    assert key_element([("port", 80), ("protocol", "TCP")]) == 'k:{"port":80,"protocol":"TCP"}'
    assert check_fields({'k:{"b": 1, "a": "x"}': {".": {}}}) == {'k:{"a":"x","b":1}': {}}
    assert check_fields({".": {}, "v: 5": {}}) == {"v:5": {}}


def test_paths_are_readable() -> None:
    cases = {
        ("f:spec", "f:replicas"): ".spec.replicas",
        ("f:spec", "f:containers", 'k:{"name":"a"}', "f:image"): '.spec.containers[name="a"].image',
        ("f:ports", 'k:{"port":80,"protocol":"TCP"}'): '.ports[port=80,protocol="TCP"]',
        ("f:finalizers", 'v:"x"'): '.finalizers[="x"]',
        ("f:list", "i:3"): ".list[3]",
    }
    for path, want in cases.items():
        assert field_path(path) == want


NONSENSE: dict[str, Any] = {
    "no object": [],
    "no object below": {"f:a": 1},
    "an unknown prefix": {"x:a": {}},
    "no prefix": {"a": {}},
    "keys that are no object": {"k:[1]": {}},
    "keys that are no JSON": {"k:{": {}},
    "a value that is no JSON": {"v:x": {}},
    "an index that is no number": {"i:x": {}},
}


@pytest.mark.parametrize("case", NONSENSE)
def test_invalid_input_is_rejected(case: str) -> None:
    with pytest.raises(FieldSetError, match="fieldsV1"):
        check_fields(NONSENSE[case])


def test_deep_nesting_is_rejected() -> None:
    fields: FieldSet = {}
    for _ in range(500):
        fields = {"f:a": fields}
    with pytest.raises(FieldSetError, match="deeper"):
        check_fields(fields)

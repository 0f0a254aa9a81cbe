"""JSON patch and merge patch: results, errors, and laws."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.units.documents import MAX_DEPTH, copy_json, is_too_deep, json_equal
from hekla.units.patches import (
    MAX_OPERATIONS,
    PatchError,
    PatchTestFailed,
    create_merge_patch,
    json_patch,
    merge_patch,
)


def nested(depth: int) -> Any:
    document: Any = "leaf"
    for _ in range(depth):
        document = {"a": document}
    return document


# document, operations, result
OPERATED: dict[str, tuple[Any, Any, Any]] = {
    "add a member": ({}, [{"op": "add", "path": "/a", "value": 1}], {"a": 1}),
    "add to the end of a list": (
        {"a": [1]},
        [{"op": "add", "path": "/a/-", "value": 2}],
        {"a": [1, 2]},
    ),
    "remove": ({"a": 1, "b": 2}, [{"op": "remove", "path": "/a"}], {"b": 2}),
    "replace with a slash in the name": (
        {"x/y": 1},
        [{"op": "replace", "path": "/x~1y", "value": 2}],
        {"x/y": 2},
    ),
    "move": ({"a": 1}, [{"op": "move", "from": "/a", "path": "/b"}], {"b": 1}),
    "copy": ({"a": [1]}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": [1], "b": [1]}),
    "test that holds": ({"a": 1}, [{"op": "test", "path": "/a", "value": 1}], {"a": 1}),
    "nothing": ({"a": 1}, [], {"a": 1}),
    "replace the root": ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}], {"b": 2}),
}
NOT_OPERATED: dict[str, tuple[Any, Any]] = {
    "remove what is not there": ({}, [{"op": "remove", "path": "/a"}]),
    "replace what is not in a list": (
        {"a": []},
        [{"op": "replace", "path": "/a/0", "value": 1}],
    ),
    "add below what is not there": ({}, [{"op": "add", "path": "/a/b", "value": 1}]),
    "add outside a list": ({"a": []}, [{"op": "add", "path": "/a/5", "value": 1}]),
    "an unknown operation": ({}, [{"op": "increment", "path": "/a"}]),
    "no operation": ({}, [{"path": "/a"}]),
    "no path": ({}, [{"op": "remove"}]),
    "no value": ({}, [{"op": "add", "path": "/a"}]),
    "no source": ({}, [{"op": "copy", "path": "/a"}]),
    "a path that is no pointer": ({}, [{"op": "add", "path": "a", "value": 1}]),
    "a path that is no text": ({}, [{"op": "add", "path": 5, "value": 1}]),
    "a source that is no text": ({}, [{"op": "copy", "from": 5, "path": "/a"}]),
    "an operation that is no object": ({}, ["remove"]),
    "operations that are no list": ({}, {"op": "remove"}),
    "too many operations": ({}, [{"op": "add", "path": "/a", "value": 1}] * (MAX_OPERATIONS + 1)),
    "a document that doubles": (
        {"a": {"text": "x" * 100}},
        [{"op": "copy", "from": "/a", "path": f"/a/{number}"} for number in range(50)],
    ),
    "a document too deep": (nested(MAX_DEPTH + 1), []),
    "a value too deep": ({}, [{"op": "add", "path": "/a", "value": nested(MAX_DEPTH)}]),
}


@pytest.mark.parametrize("case", OPERATED)
def test_json_patch_operations(case: str) -> None:
    document, operations, want = OPERATED[case]
    before = copy.deepcopy((document, operations))
    assert json_patch(document, operations) == want
    assert (document, operations) == before


@pytest.mark.parametrize("case", NOT_OPERATED)
def test_inapplicable_json_patches_are_rejected(case: str) -> None:
    document, operations = NOT_OPERATED[case]
    before = copy.deepcopy(document)
    with pytest.raises(PatchError, match="patch") as caught:
        json_patch(document, operations)
    assert not isinstance(caught.value, PatchTestFailed)
    assert document == before


@pytest.mark.parametrize(("path", "value"), [("/a", 2), ("/b", 1), ("/a", True), ("/a", "1")])
def test_failed_test_operation_has_its_own_error(path: str, value: Any) -> None:
    with pytest.raises(PatchTestFailed, match=r"operation 0 \(test '/.'\)"):
        json_patch({"a": 1}, [{"op": "test", "path": path, "value": value}])


# target, patch, result: the table of RFC 7386, appendix A
MERGED = {
    "replace": ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    "add": ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    "delete": ({"a": "b"}, {"a": None}, {}),
    "delete one of two": ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    "list by scalar": ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    "scalar by list": ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    "deep": ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    "lists are replaced": ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    "root list": (["a", "b"], ["c", "d"], ["c", "d"]),
    "object by list": ({"a": "b"}, ["c"], ["c"]),
    "root null": ({"a": "foo"}, None, None),
    "root text": ({"a": "foo"}, "bar", "bar"),
    "nulls of the target stay": ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    "list by object": ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    "nulls inside new parts vanish": ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
}


@pytest.mark.parametrize("case", MERGED)
@pytest.mark.parametrize("share", [False, True])
def test_merge_patch_follows_the_rfc(case: str, share: bool) -> None:
    target, patch, want = MERGED[case]
    before = copy.deepcopy((target, patch))
    assert merge_patch(target, patch, share=share) == want
    assert (target, patch) == before


def test_merged_documents_share_nothing_by_default() -> None:
    document = {"spec": {"list": [1]}, "status": {"phase": "x"}}
    patch = {"status": {"conditions": [{"type": "Ready"}]}}
    apart = merge_patch(document, patch)
    apart["spec"]["list"].append(2)
    apart["status"]["conditions"].clear()
    assert document == {"spec": {"list": [1]}, "status": {"phase": "x"}}
    assert patch == {"status": {"conditions": [{"type": "Ready"}]}}
    shared = merge_patch(document, patch, share=True)
    assert shared["spec"] is document["spec"]
    assert shared["status"] is not document["status"]


def test_deeply_nested_merge_patches_are_rejected() -> None:
    assert merge_patch({}, nested(MAX_DEPTH)) == nested(MAX_DEPTH)
    with pytest.raises(PatchError, match="deeper"):
        merge_patch({}, nested(MAX_DEPTH + 1))


def test_the_smallest_patch_is_found() -> None:
    cases = {
        "equal": ({"a": {"b": 1}}, {"a": {"b": 1}}, {}),
        "one leaf": ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, {"a": {"c": 3}}),
        "removal": ({"a": 1, "b": 2}, {"b": 2}, {"a": None}),
        "lists whole": ({"a": [1, 2]}, {"a": [1]}, {"a": [1]}),
        "true is not one": ({"a": 1, "b": [True]}, {"a": True, "b": [1]}, {"a": True, "b": [1]}),
        "another type": ({"a": {"b": 1}}, {"a": [1]}, {"a": [1]}),
        "emptied": ({"a": {"b": 1}}, {"a": {}}, {"a": {"b": None}}),
    }
    for case, (old, new, want) in cases.items():
        assert json_equal(create_merge_patch(old, new), want), case


leaves = st.one_of(st.booleans(), st.integers(-3, 3), st.text("ab", max_size=2))
with_null = st.one_of(st.none(), leaves)
names = st.sampled_from("abcd")


def trees(leaf: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaf,
        lambda below: st.one_of(
            st.lists(below, max_size=3), st.dictionaries(names, below, max_size=4)
        ),
        max_leaves=12,
    )


documents = st.dictionaries(names, trees(leaves), max_size=4)
patches = st.dictionaries(names, trees(with_null), max_size=4)


@given(documents, documents)
def test_patch_between_two_documents_produces_the_second(a: Any, b: Any) -> None:
    assert json_equal(merge_patch(a, create_merge_patch(a, b)), b)
    assert create_merge_patch(a, a) == {}


@given(documents, patches)
def test_merging_twice_is_merging_once(document: Any, patch: Any) -> None:
    once = merge_patch(document, patch)
    assert json_equal(merge_patch(once, patch), once)


@given(documents, patches, patches)
def test_consecutive_patches_compose(document: Any, first: Any, second: Any) -> None:
    """Merging is associative only while no object meets another type.

    {"a": 1} then {"a": {"b": null}} gives {"a": {}}; as one patch it would have to both replace `a`
    and delete `b` inside it.
    """
    combined = combine(first, second)
    if combined is not None:
        in_a_row = merge_patch(merge_patch(document, first), second)
        assert json_equal(merge_patch(document, combined), in_a_row)


def combine(first: Any, second: Any) -> Any:
    """Return `second` after `first` as one patch with nulls, or None if there is none."""
    result = dict(first)
    for key, value in second.items():
        if isinstance(value, dict) and key in result:
            if not isinstance(result[key], dict):
                return None
            value = combine(result[key], value)
            if value is None:
                return None
        result[key] = value
    return result


@given(documents, patches)
def test_shared_merge_has_the_same_result(document: Any, patch: Any) -> None:
    shared = merge_patch(document, patch, share=True)
    assert json_equal(shared, merge_patch(document, patch))


@given(trees(with_null))
def test_copies_are_equal_and_independent(value: Any) -> None:
    copied = copy_json(value)
    assert json_equal(copied, value)
    if isinstance(value, (dict, list)):
        assert copied is not value


def test_depth_is_measured_in_containers() -> None:
    assert not is_too_deep(nested(3), 3)
    assert is_too_deep(nested(4), 3)
    assert is_too_deep([[[[]]]], 3)
    assert not is_too_deep("text", 0)

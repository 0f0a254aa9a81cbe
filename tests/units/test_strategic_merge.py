"""Strategic merge: each directive, each kind of list, and idempotence."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.units.documents import MAX_DEPTH, json_equal
from hekla.units.objects import Object
from hekla.units.patches import PatchError, merge_patch, strategic_merge_patch
from hekla.units.shapes import ANY, Shape

ITEM = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "value": {"type": "integer"},
        "tags": {
            "type": "array",
            "items": {"type": "string"},
            "x-kubernetes-patch-strategy": "merge",
        },
        "below": {
            "type": "array",
            "items": {"$ref": "Item"},
            "x-kubernetes-patch-merge-key": "name",
            "x-kubernetes-patch-strategy": "merge",
        },
    },
}
SHAPE = Shape.from_schema(
    {
        "type": "object",
        "properties": {
            "items": {
                "type": "array",
                "items": {"$ref": "Item"},
                "x-kubernetes-patch-merge-key": "name",
                "x-kubernetes-patch-strategy": "merge",
            },
            "finalizers": {
                "type": "array",
                "items": {"type": "string"},
                "x-kubernetes-patch-strategy": "merge",
            },
            "args": {"type": "array", "items": {"type": "string"}},
            "atomic": {"type": "array", "items": {"$ref": "Item"}},
            "keyless": {
                "type": "array",
                "items": {"type": "object"},
                "x-kubernetes-patch-strategy": "merge",
            },
            "strategy": {
                "type": "object",
                "properties": {"type": {"type": "string"}, "rolling": {"type": "object"}},
                "x-kubernetes-patch-strategy": "retainKeys",
            },
            "whole": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "x-kubernetes-patch-strategy": "replace",
            },
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    },
    {"Item": ITEM},
)


def item(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, **fields}


# document, patch, result
MERGED: dict[str, tuple[Any, Any, Any]] = {
    "maps merge and null deletes": (
        {"labels": {"a": "1", "b": "2"}},
        {"labels": {"a": None, "c": "3"}},
        {"labels": {"b": "2", "c": "3"}},
    ),
    "elements merge by key": (
        {"items": [item("a", value=1), item("b", value=2)]},
        {"items": [item("b", value=3)]},
        {"items": [item("a", value=1), item("b", value=3)]},
    ),
    "a new element comes before the untouched": (
        {"items": [item("a"), item("b")]},
        {"items": [item("c")]},
        {"items": [item("c"), item("a"), item("b")]},
    ),
    "named elements take the order of the patch, others keep their place": (
        {"items": [item("a"), item("b"), item("c"), item("d")]},
        {"items": [item("d"), item("b")]},
        {"items": [item("a"), item("c"), item("d"), item("b")]},
    ),
    "null in an element deletes its field": (
        {"items": [item("a", value=1)]},
        {"items": [item("a", value=None)]},
        {"items": [item("a")]},
    ),
    "lists inside elements merge too": (
        {"items": [item("a", below=[item("x", value=1)])]},
        {"items": [item("a", below=[item("x", tags=["t"])])]},
        {"items": [item("a", below=[item("x", value=1, tags=["t"])])]},
    ),
    "an element is deleted by directive": (
        {"items": [item("a"), item("b"), item("a")]},
        {"items": [{"$patch": "delete", "name": "a"}]},
        {"items": [item("b")]},
    ),
    "deleting what is absent is fine": (
        {"items": [item("a")]},
        {"items": [{"$patch": "delete", "name": "z"}]},
        {"items": [item("a")]},
    ),
    "a list is replaced by directive": (
        {"items": [item("a"), item("b")]},
        {"items": [item("c"), {"$patch": "replace"}]},
        {"items": [item("c")]},
    ),
    "a list is emptied by directive": (
        {"items": [item("a")]},
        {"items": [{"$patch": "replace"}]},
        {"items": []},
    ),
    "merge may be said": (
        {"items": [item("a", value=1)], "labels": {"a": "1"}},
        {
            "items": [{"$patch": "merge", "name": "a", "tags": ["t"]}],
            "labels": {"$patch": "merge", "b": "2"},
        },
        {"items": [item("a", value=1, tags=["t"])], "labels": {"a": "1", "b": "2"}},
    ),
    "a map is replaced by directive": (
        {"labels": {"a": "1"}},
        {"labels": {"$patch": "replace", "b": "2"}},
        {"labels": {"b": "2"}},
    ),
    "a map is emptied by directive": (
        {"labels": {"a": "1"}},
        {"labels": {"$patch": "delete"}},
        {"labels": {}},
    ),
    "the whole object is replaced by directive": (
        {"labels": {"a": "1"}, "args": ["x"]},
        {"$patch": "replace", "args": ["y"]},
        {"args": ["y"]},
    ),
    "a directive about something absent leaves nothing": (
        {},
        {"labels": {"$patch": "delete"}, "items": [{"$patch": "delete", "name": "a"}]},
        {"items": []},
    ),
    "a map with the strategy replace is replaced": (
        {"whole": {"a": "1"}},
        {"whole": {"b": "2"}},
        {"whole": {"b": "2"}},
    ),
    "scalars of a merged list are united": (
        {"finalizers": ["a", "b"]},
        {"finalizers": ["b", "c"]},
        {"finalizers": ["a", "b", "c"]},
    ),
    "scalars are taken out of a merged list": (
        {"finalizers": ["a", "b", "c"]},
        {"$deleteFromPrimitiveList/finalizers": ["b", "z"]},
        {"finalizers": ["a", "c"]},
    ),
    "taking scalars out of nothing is fine": (
        {},
        {"$deleteFromPrimitiveList/finalizers": ["b"]},
        {},
    ),
    "scalars are taken out, added and ordered at once": (
        {"finalizers": ["a", "b"]},
        {
            "$deleteFromPrimitiveList/finalizers": ["a"],
            "$setElementOrder/finalizers": ["c", "b"],
            "finalizers": ["c"],
        },
        {"finalizers": ["c", "b"]},
    ),
    "an ordinary list is replaced": ({"args": ["a"]}, {"args": ["b"]}, {"args": ["b"]}),
    "an atomic list of objects is replaced": (
        {"atomic": [item("a", value=1)]},
        {"atomic": [item("a")]},
        {"atomic": [item("a")]},
    ),
    "retained keys stay and others go": (
        {"strategy": {"type": "Rolling", "rolling": {"x": 1}}},
        {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}},
        {"strategy": {"type": "Recreate"}},
    ),
    "retained keys need not be in the patch": (
        {"strategy": {"type": "Rolling", "rolling": {"x": 1}}},
        {"strategy": {"$retainKeys": ["rolling"]}},
        {"strategy": {"rolling": {"x": 1}}},
    ),
    "elements are ordered as told": (
        {"items": [item("a"), item("b"), item("c")]},
        {
            "$setElementOrder/items": [{"name": "c"}, {"name": "new"}, {"name": "a"}],
            "items": [item("new")],
        },
        {"items": [item("b"), item("c"), item("new"), item("a")]},
    ),
    "order alone moves nothing in or out": (
        {"items": [item("a"), item("b")]},
        {"$setElementOrder/items": [{"name": "b"}, {"name": "a"}, {"name": "z"}]},
        {"items": [item("b"), item("a")]},
    ),
    "order of a list that is nowhere is ignored": (
        {},
        {"$setElementOrder/items": [{"name": "a"}]},
        {},
    ),
    "order of a list that comes new": (
        {},
        {
            "$setElementOrder/items": [{"name": "b"}, {"name": "a"}],
            "items": [item("b"), item("a", value=None)],
        },
        {"items": [item("b"), item("a")]},
    ),
    "order next to a deleted element": (
        {"items": [item("a"), item("b")]},
        {
            "$setElementOrder/items": [{"name": "b"}],
            "items": [{"$patch": "delete", "name": "a"}, item("b", value=2)],
        },
        {"items": [item("b", value=2)]},
    ),
    "a deleted list needs no order": (
        {"items": [item("a")]},
        {"$setElementOrder/items": [], "items": None},
        {},
    ),
    "directives in new parts do not stay behind": (
        {},
        {"items": [item("a", **{"$setElementOrder/tags": ["t"], "tags": ["t"]})]},
        {"items": [item("a", tags=["t"])]},
    ),
    "another type replaces": ({"labels": ["odd"]}, {"labels": {"a": "1"}}, {"labels": {"a": "1"}}),
    "an unknown field merges as in a merge patch": (
        {"extra": {"a": {"b": 1}, "list": [item("a")]}},
        {"extra": {"a": {"c": 2}, "list": [item("b")]}},
        {"extra": {"a": {"b": 1, "c": 2}, "list": [item("b")]}},
    ),
    "a document that is not there": (None, {"args": ["a"]}, {"args": ["a"]}),
}
REFUSED: dict[str, tuple[Any, Any]] = {
    "an unknown directive": ({}, {"$patch": "append"}),
    "an unknown directive in a list": ({"items": []}, {"items": [{"$patch": "x", "name": "a"}]}),
    "an element without its key": ({"items": []}, {"items": [{"value": 1}]}),
    "a deletion without its key": ({"items": []}, {"items": [{"$patch": "delete"}]}),
    "a live element without its key": ({"items": [{"value": 1}]}, {"items": [item("a")]}),
    "a scalar among objects": ({"items": [item("a")]}, {"items": ["b"]}),
    "objects without a merge key": ({"keyless": [{}]}, {"keyless": [{}]}),
    "retained keys that miss one": ({}, {"strategy": {}, "$retainKeys": ["type"]}),
    "retained keys that are no list": ({}, {"$retainKeys": "type"}),
    "an order that misses an element": (
        {"items": []},
        {"$setElementOrder/items": [{"name": "b"}], "items": [item("a")]},
    ),
    "an order that contradicts the patch": (
        {"items": []},
        {
            "$setElementOrder/items": [{"name": "a"}, {"name": "b"}],
            "items": [item("b"), item("a")],
        },
    ),
    "an order that is no list": ({}, {"$setElementOrder/items": "a"}),
    "an order for something else": ({"items": {}}, {"$setElementOrder/items": []}),
    "a deletion list that is no list": ({}, {"$deleteFromPrimitiveList/finalizers": "a"}),
    "a key that is an object": ({"items": [item("a")]}, {"items": [{"name": {}}]}),
    "lists of lists": ({"finalizers": [["a"]]}, {"finalizers": [["b"]]}),
    "a patch that is no object": ({}, ["a"]),
}


@pytest.mark.parametrize("case", MERGED)
def test_patches_are_merged(case: str) -> None:
    document, patch, want = MERGED[case]
    before = copy.deepcopy((document, patch))
    assert strategic_merge_patch(document, patch, SHAPE) == want
    assert (document, patch) == before


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_patches_are_rejected(case: str) -> None:
    document, patch = REFUSED[case]
    with pytest.raises(PatchError, match="strategic merge patch"):
        strategic_merge_patch(document, patch, SHAPE)


def test_deeply_nested_patches_are_rejected() -> None:
    patch: Any = {}
    for _ in range(MAX_DEPTH):
        patch = {"a": patch}
    with pytest.raises(PatchError, match="deeper"):
        strategic_merge_patch({}, patch, ANY)


def test_error_names_the_path() -> None:
    with pytest.raises(PatchError, match=r"\.items\[a\]\.below.*'name'"):
        strategic_merge_patch(
            {"items": [item("a", below=[])]}, {"items": [item("a", below=[{"value": 1}])]}, SHAPE
        )


def test_unchanged_parts_are_shared_only_on_request() -> None:
    document: Object = {"args": ["a"], "items": [item("a", tags=["x"]), item("b")]}
    patch = {"items": [item("b", value=1)]}
    apart = strategic_merge_patch(document, patch, SHAPE)
    shared = strategic_merge_patch(document, patch, SHAPE, share=True)
    assert apart == shared
    assert apart["args"] is not document["args"]
    assert shared["args"] is document["args"]
    assert shared["items"][0] is document["items"][0]


labels = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["1", "2"]), max_size=3)
tags = st.lists(st.sampled_from("xyz"), max_size=3, unique=True)
leaves: st.SearchStrategy[Object] = st.fixed_dictionaries(
    {"name": st.sampled_from("pqr")}, optional={"value": st.integers(0, 3), "tags": tags}
)
elements: st.SearchStrategy[Object] = st.recursive(
    leaves,
    lambda below: st.fixed_dictionaries(
        {"name": st.sampled_from("pqr")},
        optional={"below": st.lists(below, max_size=3, unique_by=lambda each: each["name"])},
    ),
    max_leaves=4,
)
items: st.SearchStrategy[list[Object]] = st.lists(
    elements, max_size=3, unique_by=lambda each: each["name"]
)
documents = st.fixed_dictionaries(
    {},
    optional={
        "labels": labels,
        "finalizers": tags,
        "args": tags,
        "items": items,
    },
)


@given(documents, documents)
def test_merging_twice_is_merging_once(document: Any, patch: Any) -> None:
    once = strategic_merge_patch(document, patch, SHAPE)
    assert json_equal(strategic_merge_patch(once, patch, SHAPE), once)


@given(documents, documents)
def test_result_contains_every_element_of_both_sides(document: Any, patch: Any) -> None:
    merged = strategic_merge_patch(document, patch, SHAPE)
    wanted = {each["name"] for side in (document, patch) for each in side.get("items", [])}
    assert {each["name"] for each in merged.get("items", [])} == wanted
    assert set(merged.get("finalizers", [])) == {
        *document.get("finalizers", []),
        *patch.get("finalizers", []),
    }


@given(documents, documents)
def test_without_a_schema_it_is_a_merge_patch(document: Any, patch: Any) -> None:
    assert json_equal(strategic_merge_patch(document, patch, ANY), merge_patch(document, patch))

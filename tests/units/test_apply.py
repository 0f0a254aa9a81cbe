"""Server-side apply: merging, conflicts, removal, and its laws."""

import copy
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hekla.units.apply import (
    ApplyConflict,
    ApplyError,
    Conflict,
    apply,
    managed_fields_after_update,
)
from hekla.units.documents import MAX_DEPTH
from hekla.units.fieldsets import decode_fields
from hekla.units.shapes import ANY, Shape

from .widgets import VERSION, WIDGET, bare, owners, specs, widget

NOON = 1_767_355_200.0


def applied(
    live: dict[str, Any] | None,
    config: dict[str, Any],
    manager: str = "me",
    *,
    force: bool = False,
    at: float = 0.0,
    subresource: str = "",
    shape: Shape = WIDGET,
    ignored: tuple[str, ...] = (),
) -> dict[str, Any]:
    before = copy.deepcopy((live, config))
    result = apply(
        live,
        config,
        manager=manager,
        force=force,
        shape=shape,
        api_version=VERSION,
        now=NOON + at,
        subresource=subresource,
        ignored=ignored,
    )
    assert (live, config) == before
    return result


def updated(live: dict[str, Any] | None, new: dict[str, Any], manager: str) -> dict[str, Any]:
    new = copy.deepcopy(new)
    new["metadata"]["managedFields"] = managed_fields_after_update(
        live, new, manager=manager, api_version=VERSION, now=NOON, shape=WIDGET
    )
    return new


def spec_of(*configs: tuple[str, dict[str, Any]], force: bool = False) -> Any:
    """Return the spec after (manager, spec) were applied in order."""
    item: dict[str, Any] | None = None
    for manager, spec in configs:
        item = applied(item, widget(spec), manager, force=force)
    assert item is not None
    return item.get("spec")


def test_apply_creates_and_owns_the_given_fields() -> None:
    item = applied(None, widget({"replicas": 1, "options": {"a": "1"}}, labels={"x": "y"}))
    assert bare(item) == widget({"replicas": 1, "options": {"a": "1"}}, labels={"x": "y"})
    assert item["metadata"]["managedFields"] == [
        {
            "manager": "me",
            "operation": "Apply",
            "apiVersion": VERSION,
            "time": "2026-01-02T12:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {"f:x": {}}},
                "f:spec": {"f:replicas": {}, "f:options": {"f:a": {}}},
            },
        }
    ]


def test_omitted_fields_are_removed_and_others_stay() -> None:
    item = applied(None, widget({"replicas": 1, "nested": {"one": 1, "two": 2}}))
    item = updated(item, {**item, "spec": {**item["spec"], "paused": True}}, "other")
    item = applied(item, widget({"nested": {"two": 2}}))
    assert item["spec"] == {"nested": {"two": 2}, "paused": True}


def test_field_with_another_applier_stays() -> None:
    item = applied(None, widget({"replicas": 1}), "a")
    item = applied(item, widget({"replicas": 1}), "b")
    item = applied(item, widget({}), "a")
    assert item["spec"] == {"replicas": 1}
    assert list(owners(item)) == ["a/Apply", "b/Apply"]
    item = applied(item, widget(), "b")
    assert item["spec"] == {}
    item = applied(item, widget(), "a")
    assert "spec" not in item
    assert "managedFields" not in item["metadata"]


def test_another_value_is_a_conflict() -> None:
    item = applied(None, widget({"replicas": 1, "options": {"a": "1"}}), "a")
    with pytest.raises(ApplyConflict) as caught:
        applied(item, widget({"replicas": 2, "options": {"a": "2", "b": "2"}}), "b")
    assert caught.value.conflicts == [
        Conflict("a", "", VERSION, ".spec.replicas"),  # deeper paths come later
        Conflict("a", "", VERSION, ".spec.options.a"),
    ]
    assert "2 conflicts" in str(caught.value)
    assert "'a' using example.com/v1" in str(caught.value)


def test_conflicts_name_elements_of_lists_and_the_subresource() -> None:
    item = applied(
        None,
        widget({"containers": [{"name": "a", "image": "1", "ports": [{"port": 80, "name": "x"}]}]}),
        "a",
        subresource="scale",
    )
    config = widget(
        {"containers": [{"name": "a", "image": "2", "ports": [{"port": 80, "name": "y"}]}]}
    )
    with pytest.raises(ApplyConflict) as caught:
        applied(item, config, "b")
    assert caught.value.conflicts == [
        ("a", "scale", VERSION, '.spec.containers[name="a"].image'),
        ("a", "scale", VERSION, '.spec.containers[name="a"].ports[port=80,protocol="TCP"].name'),
    ]
    assert "(subresource 'scale')" in str(caught.value)


def test_force_changes_the_owner() -> None:
    item = applied(None, widget({"replicas": 1, "paused": True}), "a")
    item = applied(item, widget({"replicas": 2}), "b", force=True)
    assert item["spec"] == {"replicas": 2, "paused": True}
    assert owners(item) == {
        "a/Apply": {"f:spec": {"f:paused": {}}},
        "b/Apply": {"f:spec": {"f:replicas": {}}},
    }


def test_equal_value_is_shared_without_conflict() -> None:
    item = applied(None, widget({"replicas": 1}), "a")
    item = applied(item, widget({"replicas": 1}), "b", at=60)
    assert owners(item) == {
        "a/Apply": {"f:spec": {"f:replicas": {}}},
        "b/Apply": {"f:spec": {"f:replicas": {}}},
    }


def test_update_and_apply_of_one_manager_are_separate_entries() -> None:
    item = updated(None, widget({"replicas": 1}), "me")
    with pytest.raises(ApplyConflict):
        applied(item, widget({"replicas": 2}), "me")
    item = applied(item, widget({"replicas": 2}), "me", force=True)
    assert owners(item) == {
        "me/Apply": {"f:spec": {"f:replicas": {}}},
        "me/Update": {"f:spec": {}},
    }


def test_fields_from_before_the_first_apply_have_an_owner() -> None:
    live = widget({"replicas": 1, "paused": True})
    with pytest.raises(ApplyConflict) as caught:
        applied(live, widget({"replicas": 2}))
    assert caught.value.conflicts == [("before-first-apply", "", VERSION, ".spec.replicas")]
    item = applied(live, widget({"replicas": 1}))
    assert owners(item) == {
        "me/Apply": {"f:spec": {"f:replicas": {}}},
        "before-first-apply/Update": {"f:spec": {".": {}, "f:paused": {}, "f:replicas": {}}},
    }


def test_repeated_apply_changes_nothing() -> None:
    item = applied(None, widget({"replicas": 1}))
    assert applied(item, widget({"replicas": 1}), at=60) == item
    more = applied(item, widget({"replicas": 1, "paused": True}), at=60)
    assert more["metadata"]["managedFields"][0]["time"] == "2026-01-02T12:01:00Z"


def test_lists_that_are_maps_merge_by_key() -> None:
    got = spec_of(
        ("a", {"containers": [{"name": "x", "image": "1"}, {"name": "y"}]}),
        ("b", {"containers": [{"name": "z"}, {"name": "y", "image": "2"}]}),
    )
    assert got["containers"] == [
        {"name": "x", "image": "1"},
        {"name": "z"},
        {"name": "y", "image": "2"},
    ]


ORDERS = {  # live, configuration, merged
    "the configuration's order wins": ("abc", "ca", "bca"),
    "a new element keeps its neighbours": ("ab", "xa", "xab"),
    "new elements at the end": ("ab", "ax", "abx"),
    "untouched elements stay first": ("ab", "x", "abx"),
    "nothing is said": ("ab", "", "ab"),
    "all reversed": ("abc", "cba", "cba"),
    "one moved over": ("abcd", "db", "acdb"),
    "nothing was there": ("", "ba", "ba"),
}


@pytest.mark.parametrize("case", ORDERS)
def test_elements_are_ordered_by_the_configuration(case: str) -> None:
    live, config, want = ORDERS[case]
    got = spec_of(("a", {"guards": list(live)}), ("b", {"guards": list(config)}))
    assert got["guards"] == list(want)


def test_omitted_key_has_its_default() -> None:
    got = spec_of(
        ("a", {"containers": [{"name": "x", "ports": [{"port": 80, "protocol": "TCP"}]}]}),
        (
            "b",
            {
                "containers": [
                    {
                        "name": "x",
                        "ports": [{"port": 80, "name": "web"}, {"port": 80, "protocol": "UDP"}],
                    }
                ]
            },
        ),
    )
    assert got["containers"][0]["ports"] == [
        {"port": 80, "protocol": "TCP", "name": "web"},
        {"port": 80, "protocol": "UDP"},
    ]


def test_omitted_elements_are_removed() -> None:
    got = spec_of(
        ("a", {"containers": [{"name": "x", "image": "1"}, {"name": "y"}], "guards": ["g", "h"]}),
        ("b", {"containers": [{"name": "z"}], "guards": ["h"]}),
        ("a", {"containers": [{"name": "x"}], "guards": ["g"]}),
    )
    assert got == {"containers": [{"name": "x"}, {"name": "z"}], "guards": ["g", "h"]}


def test_element_is_removed_with_its_applier() -> None:
    item = applied(None, widget({"containers": [{"name": "x"}, {"name": "y"}]}), "a")
    changed = copy.deepcopy(item)
    changed["spec"]["containers"][0]["image"] = "set-by-other"
    item = updated(item, changed, "other")
    item = applied(item, widget({"containers": [{"name": "y"}]}), "a")
    assert item["spec"] == {"containers": [{"name": "y"}]}
    assert list(owners(item)) == ["a/Apply"]


def test_atomic_lists_and_maps_are_owned_whole() -> None:
    item = applied(None, widget({"args": ["a", "b"], "selector": {"a": "1", "b": "2"}}), "a")
    with pytest.raises(ApplyConflict) as caught:
        applied(item, widget({"args": ["a"], "selector": {"a": "1"}}), "b")
    assert [conflict.field for conflict in caught.value.conflicts] == [
        ".spec.args",
        ".spec.selector",
    ]
    item = applied(item, widget({"args": ["c"], "selector": {"c": "3"}}), "a")
    assert item["spec"] == {"args": ["c"], "selector": {"c": "3"}}


def test_null_counts_as_omitted() -> None:
    item = applied(None, widget({"replicas": 1, "paused": True}))
    item = applied(item, widget({"replicas": None, "paused": True}))
    assert item["spec"] == {"paused": True}


def test_empty_list_can_be_removed() -> None:
    item = applied(None, widget({"replicas": 1, "containers": []}))
    assert item["spec"] == {"replicas": 1, "containers": []}
    assert applied(item, widget({"replicas": 1}))["spec"] == {"replicas": 1}


def test_empty_map_is_a_field() -> None:
    item = applied(None, widget({"options": {}}), "a")
    assert owners(item) == {"a/Apply": {"f:spec": {"f:options": {}}}}
    item = applied(item, widget({"options": {"x": "1"}}), "b")
    item = applied(item, widget({}), "b")
    assert item["spec"] == {"options": {}}


def test_unknown_structure_is_merged_key_by_key() -> None:
    item = applied(None, widget({"free": {"a": {"x": 1}}}), "a")
    assert owners(item)["a/Apply"] == {"f:spec": {"f:free": {"f:a": {".": {}, "f:x": {}}}}}
    item = applied(item, widget({"free": {"a": {"y": 2}}}), "b")
    item = applied(item, widget({}), "a")
    assert item["spec"] == {"free": {"a": {"y": 2}}}


def test_field_of_another_manager_keeps_its_map() -> None:
    item = applied(None, widget({"free": {"a": {"x": 1}}}), "a")
    changed = copy.deepcopy(item)
    changed["spec"]["free"]["a"]["y"] = 2
    item = updated(item, changed, "other")
    item = applied(item, widget({}), "a")
    assert item["spec"] == {"free": {"a": {"y": 2}}}


def test_without_any_schema_apply_still_works() -> None:
    item = applied(None, widget({"a": {"b": [1]}}), "a", shape=ANY)
    item = applied(item, widget({"a": {"c": 1}}), "b", shape=ANY)
    item = applied(item, widget(), "a", shape=ANY)
    assert item["spec"] == {"a": {"c": 1}}


def test_ignored_fields_are_dropped_from_the_configuration() -> None:
    config = widget({"replicas": 1}, status={"phase": "x"})
    item = applied(None, config, ignored=("status",))
    assert bare(item) == widget({"replicas": 1})
    assert list(owners(item)["me/Apply"]) == ["f:spec"]


def test_stored_duplicates_are_replaced_by_the_applied_element() -> None:
    twice = [{"name": "x", "image": "1"}, {"name": "x", "image": "2"}, {"name": "y"}]
    live = updated(None, widget({"containers": twice}), "creator")
    item = applied(live, widget({"containers": [{"name": "x", "image": "3"}]}), force=True)
    assert item["spec"]["containers"] == [{"name": "x", "image": "3"}, {"name": "y"}]


def test_the_result_shares_nothing_with_its_inputs() -> None:
    config = widget({"args": ["a"], "options": {"x": "1"}})
    item = applied(None, config)
    item["spec"]["args"].append("b")
    item["spec"]["options"]["y"] = "2"
    assert config == widget({"args": ["a"], "options": {"x": "1"}})


REFUSED: dict[str, tuple[Any, Any]] = {
    "no object": (None, []),
    "managed fields of its own": (None, widget({}, managedFields=[{}])),
    "an element without its key": (None, widget({"containers": [{"image": "1"}]})),
    "an element that is no object": (None, widget({"containers": ["x"]})),
    "an element with half its key and no default": (
        None,
        widget({"containers": [{"name": "a", "ports": ["x"]}]}),
    ),
    "an object in a set": (None, widget({"guards": [{}]})),
    "null in a set": (None, widget({"guards": [None]})),
    "the same key twice": (None, widget({"containers": [{"name": "a"}, {"name": "a"}]})),
    "the same value twice": (None, widget({"guards": ["a", "a"]})),
    "a live object with broken entries": (widget({}, managedFields=[{"manager": "x"}]), widget({})),
    "a live element without its key": (
        widget({"containers": [{"image": "1"}]}),
        widget({"containers": [{"name": "a"}]}),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_configurations_are_rejected(case: str) -> None:
    live, config = REFUSED[case]
    with pytest.raises(ApplyError, match="apply: ") as caught:
        applied(live, config)
    assert not isinstance(caught.value, ApplyConflict)


def test_error_names_the_path() -> None:
    with pytest.raises(ApplyError, match=r"spec\.containers: an element lacks its key 'name'"):
        applied(None, widget({"containers": [{"image": "1"}]}))
    with pytest.raises(ApplyError, match=r'spec\.containers\[name="a"\] appears twice'):
        applied(None, widget({"containers": [{"name": "a"}, {"name": "a"}]}))


def test_deep_nesting_is_rejected() -> None:
    deep: Any = {}
    for _ in range(MAX_DEPTH):
        deep = {"a": deep}
    with pytest.raises(ApplyError, match="deeper"):
        applied(None, widget({"free": deep}))


@given(specs)
def test_law_applying_twice_is_applying_once(spec: dict[str, Any]) -> None:
    item = applied(None, widget(spec))
    assert applied(item, widget(spec), at=60) == item


@given(specs, specs)
def test_law_applying_over_other_managers_twice_is_applying_once(
    theirs: dict[str, Any], mine: dict[str, Any]
) -> None:
    live = applied(None, widget(theirs), "them")
    item = applied(live, widget(mine), force=True)
    assert applied(item, widget(mine), at=60) == item


@given(specs, specs)
def test_law_an_applied_configuration_is_in_the_result(
    theirs: dict[str, Any], mine: dict[str, Any]
) -> None:
    live = updated(None, widget(theirs), "them")
    item = applied(live, widget(mine), force=True)
    alone = applied(None, widget(mine))
    assert owners(item).get("me/Apply") == owners(alone).get("me/Apply")
    for key in ("replicas", "args", "selector"):
        if key in mine:
            assert item["spec"][key] == mine[key]


@given(specs, specs)
def test_law_applying_nothing_removes_exclusively_owned_fields(
    theirs: dict[str, Any], mine: dict[str, Any]
) -> None:
    """Withdrawing restores the original object, unless something was forced."""
    live = updated(None, widget(theirs, labels={"a": "b"}), "them")
    try:
        item = applied(live, widget(mine))
    except ApplyConflict:
        assume(False)
    after = applied(item, widget())
    assert unordered(bare(after)) == unordered(bare(live))
    assert owners(after) == owners(live)


def unordered(value: Any) -> Any:
    """Sort: merging may have reordered elements of sets and maps."""
    if isinstance(value, dict):
        return {key: unordered(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted((unordered(item) for item in value), key=repr)
    return value


FIELDS = ["replicas", "args", "guards", "selector", "options", "nested", "containers"]


@given(specs, specs, st.sets(st.sampled_from(FIELDS)))
def test_law_managers_of_different_fields_never_conflict_and_order_does_not_matter(
    one: dict[str, Any], other: dict[str, Any], belongs_to_one: set[str]
) -> None:
    first = widget({key: value for key, value in one.items() if key in belongs_to_one})
    second = widget({key: value for key, value in other.items() if key not in belongs_to_one})
    forwards = applied(applied(None, first, "a"), second, "b")
    backwards = applied(applied(None, second, "b"), first, "a")
    assert forwards == backwards


@given(specs, specs, specs)
def test_law_conflicts_are_exactly_what_force_overrides(
    theirs: dict[str, Any], mine: dict[str, Any], more: dict[str, Any]
) -> None:
    live = applied(applied(None, widget(theirs), "a"), widget(more), "b", force=True)
    forced = applied(live, widget(mine), "me", force=True)
    before = {manager: decode_fields(fields) for manager, fields in owners(live).items()}
    after = {manager: decode_fields(fields) for manager, fields in owners(forced).items()}
    lost = sum(len(fields - after.get(manager, frozenset())) for manager, fields in before.items())
    try:
        applied(live, widget(mine), "me")
    except ApplyConflict as conflict:
        assert len(conflict.conflicts) == lost  # noqa: PT017
    else:
        assert lost == 0

"""metadata.managedFields after creates, updates and patches."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.units.apply import managed_fields_after_update
from hekla.units.fieldsets import decode_fields
from hekla.units.objects import Object
from hekla.units.ownership import MAX_UPDATE_MANAGERS
from hekla.units.shapes import ANY, Shape

from .widgets import VERSION, WIDGET, owners, specs, widget

NOON = 1_767_355_200.0  # 2026-01-02T12:00:00Z


def write(
    old: dict[str, Any] | None,
    new: dict[str, Any],
    manager: str = "me",
    *,
    at: float = 0.0,
    subresource: str = "",
    shape: Shape = WIDGET,
    ignored: tuple[str, ...] = (),
    blank: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return `new` as stored when `manager` writes it over `old`."""
    new = copy.deepcopy(new)
    before = copy.deepcopy((old, new))
    entries = managed_fields_after_update(
        old,
        new,
        manager=manager,
        api_version=VERSION,
        now=NOON + at,
        shape=shape,
        subresource=subresource,
        ignored=ignored,
        blank=blank,
    )
    assert (old, new) == before
    new["metadata"]["managedFields"] = entries
    return new


def edited(item: dict[str, Any], **spec: Any) -> dict[str, Any]:
    changed = copy.deepcopy(item)
    for key, value in spec.items():
        if value is None:
            del changed["spec"][key]
        else:
            changed["spec"][key] = value
    return changed


def test_creator_owns_all_fields_except_identity() -> None:
    item = write(
        None,
        widget(
            {
                "replicas": 1,
                "args": ["a"],
                "guards": ["g"],
                "selector": {"a": "b"},
                "options": {"x": "y"},
                "nested": {},
                "containers": [{"name": "c", "ports": [{"port": 80}]}],
            },
            uid="1",
            resourceVersion="2",
            generation=1,
            creationTimestamp="2026-01-02T12:00:00Z",
            deletionTimestamp="2026-01-02T12:00:00Z",
            labels={"app": "w"},
            finalizers=["f"],
            ownerReferences=[{"uid": "u", "name": "n"}],
        ),
    )
    assert item["metadata"]["managedFields"] == [
        {
            "manager": "me",
            "operation": "Update",
            "apiVersion": VERSION,
            "time": "2026-01-02T12:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {
                    "f:labels": {".": {}, "f:app": {}},
                    "f:finalizers": {".": {}, 'v:"f"': {}},
                    "f:ownerReferences": {".": {}, 'k:{"uid":"u"}': {}},
                },
                "f:spec": {
                    ".": {},
                    "f:replicas": {},
                    "f:args": {},
                    "f:guards": {".": {}, 'v:"g"': {}},
                    "f:selector": {},
                    "f:options": {".": {}, "f:x": {}},
                    "f:nested": {},
                    "f:containers": {
                        ".": {},
                        'k:{"name":"c"}': {
                            ".": {},
                            "f:name": {},
                            "f:ports": {
                                ".": {},
                                'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}},
                            },
                        },
                    },
                },
            },
        }
    ]


def test_empty_structs_of_built_in_kinds_have_no_owner() -> None:
    """As `kubectl create deployment` shows: `f:spec` has no ".", `f:rollingUpdate` has."""
    shape = Shape.from_schema(
        {
            "type": "object",
            "properties": {
                "spec": {
                    "type": "object",
                    "properties": {
                        "strategy": {
                            "type": "object",
                            "properties": {"rolling": {"type": "object"}, "type": {}},
                        },
                        "items": {
                            "type": "array",
                            "x-kubernetes-list-type": "map",
                            "x-kubernetes-list-map-keys": ["name"],
                            "items": {
                                "type": "object",
                                "properties": {"inner": {"type": "object"}},
                            },
                        },
                    },
                }
            },
        }
    )
    spec = {
        "strategy": {"type": "x", "rolling": {"max": 1}},
        "items": [{"name": "a", "inner": {"b": 1}}],
    }
    blank: Object = {"spec": {"items": None, "strategy": {}}}
    assert owners(write(None, widget(spec), shape=shape, blank=blank))["me/Update"] == {
        "f:spec": {
            "f:strategy": {"f:type": {}, "f:rolling": {".": {}, "f:max": {}}},
            "f:items": {'k:{"name":"a"}': {".": {}, "f:name": {}, "f:inner": {".": {}, "f:b": {}}}},
        }
    }


def test_changed_fields_move_to_their_last_manager() -> None:
    item = write(None, widget({"replicas": 1, "paused": True}), "creator")
    item = write(item, edited(item, replicas=2), "scaler", at=60)
    assert owners(item) == {
        "creator/Update": {"f:spec": {".": {}, "f:paused": {}}},
        "scaler/Update": {"f:spec": {"f:replicas": {}}},
    }
    assert [entry["time"] for entry in item["metadata"]["managedFields"]] == [
        "2026-01-02T12:00:00Z",
        "2026-01-02T12:01:00Z",
    ]


def test_removed_fields_have_no_owner() -> None:
    item = write(None, widget({"replicas": 1, "nested": {"one": 1}}), "creator")
    item = write(item, edited(item, nested=None), "cleaner", at=60)
    assert owners(item) == {"creator/Update": {"f:spec": {".": {}, "f:replicas": {}}}}
    assert item["metadata"]["managedFields"][0]["time"] == "2026-01-02T12:00:00Z"


def test_entry_without_fields_is_removed() -> None:
    item = write(None, widget({"replicas": 1}), "creator")
    item = write(item, edited(item, paused=True), "pauser")
    item = write(item, edited(item, paused=None), "creator")
    assert list(owners(item)) == ["creator/Update"]


def test_unchanged_update_keeps_ownership() -> None:
    item = write(None, widget({"replicas": 1, "containers": [{"name": "a"}]}), "creator")
    again = managed_fields_after_update(
        item, copy.deepcopy(item), manager="me", api_version=VERSION, now=NOON + 60, shape=WIDGET
    )
    assert again is item["metadata"]["managedFields"]


def test_server_written_metadata_is_not_a_change() -> None:
    item = write(None, widget({"replicas": 1}, resourceVersion="1", generation=1), "creator")
    new = copy.deepcopy(item)
    new["metadata"].update(resourceVersion="2", generation=2, deletionTimestamp="x", uid="u")
    assert write(item, new, "other")["metadata"]["managedFields"] == owners_list(item)


def owners_list(item: dict[str, Any]) -> Any:
    return item["metadata"]["managedFields"]


def test_elements_of_lists_are_fields() -> None:
    item = write(
        None, widget({"containers": [{"name": "a", "image": "1"}], "guards": ["x"]}), "creator"
    )
    item = write(
        item,
        edited(
            item,
            containers=[{"name": "b", "image": "1"}, {"name": "a", "image": "2"}],
            guards=["y", "x"],
        ),
        "editor",
    )
    assert owners(item)["editor/Update"] == {
        "f:spec": {
            "f:containers": {
                'k:{"name":"b"}': {".": {}, "f:name": {}, "f:image": {}},
                'k:{"name":"a"}': {"f:image": {}},
            },
            "f:guards": {'v:"y"': {}},
        }
    }
    item = write(item, edited(item, containers=[{"name": "a", "image": "2"}]), "remover")
    assert owners(item)["editor/Update"]["f:spec"]["f:containers"] == {
        'k:{"name":"a"}': {"f:image": {}}
    }


def test_atomic_structures_change_as_a_whole() -> None:
    item = write(None, widget({"args": ["a"], "selector": {"a": "b"}}), "creator")
    item = write(item, edited(item, args=["a", "b"], selector={"a": "c"}), "editor")
    assert owners(item) == {
        "creator/Update": {"f:spec": {}},
        "editor/Update": {"f:spec": {"f:args": {}, "f:selector": {}}},
    }


def test_list_elements_with_equal_keys_count_as_one() -> None:
    twice = [{"name": "a", "image": "1"}, {"name": "a", "image": "2"}]
    item = write(None, widget({"containers": twice}), "creator")
    assert owners(item)["creator/Update"]["f:spec"]["f:containers"] == {
        ".": {},
        'k:{"name":"a"}': {},
    }
    item = write(item, edited(item, containers=[twice[0], {"name": "a", "image": "3"}]), "editor")
    assert owners(item)["editor/Update"] == {"f:spec": {"f:containers": {'k:{"name":"a"}': {}}}}
    item = write(item, edited(item, containers=twice[:1]), "fixer")
    assert owners(item)["fixer/Update"] == {
        "f:spec": {"f:containers": {'k:{"name":"a"}': {".": {}, "f:name": {}, "f:image": {}}}}
    }


def test_list_without_element_keys_is_treated_as_atomic() -> None:
    item = write(None, widget({"containers": [{"image": "x"}]}), "creator")
    assert owners(item)["creator/Update"]["f:spec"]["f:containers"] == {}
    item = write(item, edited(item, containers=[{"image": "y"}]), "editor")
    assert owners(item)["editor/Update"] == {"f:spec": {"f:containers": {}}}


def test_changed_type_makes_the_whole_value_new() -> None:
    item = write(None, widget({"free": {"a": {"b": 1}}}), "creator")
    item = write(item, edited(item, free={"a": [1]}), "editor")
    assert owners(item)["creator/Update"]["f:spec"]["f:free"] == {}
    assert owners(item)["editor/Update"] == {"f:spec": {"f:free": {"f:a": {}}}}


def test_subresources_have_separate_entries() -> None:
    item = write(None, widget({"replicas": 1}), "me")
    new = {**copy.deepcopy(item), "status": {"phase": "Running"}}
    item = write(item, new, "me", subresource="status", at=1)
    entries = item["metadata"]["managedFields"]
    assert [entry.get("subresource") for entry in entries] == [None, "status"]
    assert entries[1]["fieldsV1"] == {"f:status": {".": {}, "f:phase": {}}}


def test_ignored_fields_are_not_tracked() -> None:
    item = write(None, widget({"replicas": 1}, status={"phase": "x"}), ignored=("status",))
    assert list(owners(item)["me/Update"]) == ["f:spec"]
    changed = {**copy.deepcopy(item), "status": {"phase": "y"}}
    assert write(item, changed, "other", ignored=("status",)) == {
        **changed,
        "metadata": item["metadata"],
    }


def test_untracked_object_stays_untracked() -> None:
    assert "managedFields" not in widget({"replicas": 1})["metadata"]
    item = write(widget({"replicas": 1}), widget({"replicas": 2}))
    assert item["metadata"]["managedFields"] == []


def test_client_may_clear_or_edit_entries_and_omitting_keeps_them() -> None:
    item = write(None, widget({"replicas": 1}), "creator")

    def sent(entries: Any, subresource: str = "") -> Any:
        new = copy.deepcopy(item)
        if entries is None:
            del new["metadata"]["managedFields"]
        else:
            new["metadata"]["managedFields"] = entries
        return write(item, new, "client", subresource=subresource)["metadata"]["managedFields"]

    entries = item["metadata"]["managedFields"]
    renamed = [{**entries[0], "manager": "renamed"}]
    assert sent(None) == entries
    assert sent([]) == []
    assert sent([{}]) == []
    assert sent(renamed) == renamed
    assert sent(renamed, "status") == entries
    assert sent([{"manager": "nonsense"}]) == entries
    assert sent([{**entries[0], "fieldsV1": {"nonsense": {}}}]) == entries


def test_manager_without_a_name_is_unknown() -> None:
    assert list(owners(write(None, widget({"replicas": 1}), ""))) == ["unknown/Update"]


def test_oldest_updates_are_merged_beyond_the_limit() -> None:
    item = write(None, widget({"options": {}}), "creator")
    for number in range(MAX_UPDATE_MANAGERS + 3):
        options = {**item["spec"]["options"], f"o{number}": "x"}
        item = write(item, edited(item, options=options), f"manager-{number:02}", at=60 + number)
    entries = item["metadata"]["managedFields"]
    assert len(entries) == MAX_UPDATE_MANAGERS
    assert entries[0]["manager"] == "ancient-changes"
    assert [entry["manager"] for entry in entries[1:]] == [
        f"manager-{number:02}" for number in range(4, MAX_UPDATE_MANAGERS + 3)
    ]
    assert set(entries[0]["fieldsV1"]["f:spec"]["f:options"]) == {
        ".",
        *(f"f:o{number}" for number in range(4)),
    }
    assert entries[0]["time"] == "2026-01-02T12:01:03Z"


def test_without_schema_maps_are_granular_and_lists_atomic() -> None:
    item = write(None, widget({"a": {"b": [1], "c": {}}}), shape=ANY)
    assert owners(item)["me/Update"] == {
        "f:spec": {".": {}, "f:a": {".": {}, "f:b": {}, "f:c": {}}}
    }


def members(item: dict[str, Any]) -> list[frozenset[tuple[str, ...]]]:
    return [decode_fields(entry["fieldsV1"]) for entry in item["metadata"]["managedFields"]]


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), specs), min_size=1, max_size=5))
def test_every_owned_field_exists_and_has_at_most_one_updater(
    writes: list[tuple[str, dict[str, Any]]],
) -> None:
    item: dict[str, Any] | None = None
    for manager, spec in writes:
        item = write(
            item, {**widget(spec), "metadata": {"name": "w", "namespace": "default"}}, manager
        )
    assert item is not None
    sets = members(item)
    assert sum(map(len, sets)) == len(frozenset().union(*sets))
    everything = members(write(None, widget(writes[-1][1])))
    assert frozenset().union(*sets) <= frozenset().union(*everything)


@given(specs, specs)
def test_manager_owns_everything_it_adds(before: dict[str, Any], after: dict[str, Any]) -> None:
    item = write(None, widget(before), "creator")
    new = write(item, {**copy.deepcopy(item), "spec": after}, "editor")
    mine = decode_fields(owners(new).get("editor/Update", {}))
    fields_before = frozenset().union(*members(item))
    fields_after = frozenset().union(*members(write(None, widget(after))))
    assert fields_after - fields_before <= mine | fields_before
    assert fields_after - fields_before == mine - fields_before


@pytest.mark.parametrize("moment", [NOON, "2026-01-02T12:00:00Z"])
def test_now_may_be_seconds_or_text(moment: float | str) -> None:
    entries = managed_fields_after_update(
        None, widget({}), manager="me", api_version=VERSION, now=moment, shape=WIDGET
    )
    assert entries[0]["time"] == "2026-01-02T12:00:00Z"

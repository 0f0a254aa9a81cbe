"""Selectors are parsed, printed and matched as in apimachinery."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.units.objects import Object
from hekla.units.selectors import (
    EVERYTHING,
    NOTHING,
    FieldSelector,
    FieldTerm,
    LabelSelector,
    Requirement,
    SelectorError,
    escape_field_value,
    label_key_problem,
    label_value_problem,
    parse_field_selector,
    parse_label_selector,
)

# text -> canonical
READ = {
    "x=a,y=b,z=c": "x=a,y=b,z=c",
    "": "",
    "  ": "",
    "x!=a,y=b": "x!=a,y=b",
    "x=": "x=",
    "x= ": "x=",
    "x= ,z= ": "x=,z=",
    "!x": "!x",
    "x>1,z<5": "x>1,z<5",
    "x==a": "x==a",
    "z=c,a=b": "a=b,z=c",
    "x in (b, a ,b)": "x in (a,b)",
    "x notin ()": "x notin ()",
    "x in (a,)": "x in (,a)",
    "x in (,,a)": "x in (,a)",
    "in in (in,notin)": "in in (in,notin)",
    "notin=in": "notin=in",
    " g , ! h ": "g,!h",
    "example.com/app=web": "example.com/app=web",
    "x\t in\n(a)": "x in (a)",
}
REFUSED = {
    "other connectors": "x=a||y=b",
    "two equal signs in a row of three": "x==a==b",
    "a negation with a value": "!x=a",
    "order by text": "x<a",
    "order by a fraction": "x>1.5",
    "order beyond 64 bits": "x>9223372036854775808",
    "a comma at the end": "x=a,",
    "a comma at the start": ",x=a",
    "an open list": "x in (a",
    "a list without parentheses": "x in a",
    "a word too many": "x=a b",
    "a word for an operator": "x is a",
    "a key with a space of its own": "=a",
    "a key that ends with a dash": "x-=a",
    "an upper-case prefix": "Example.com/x=a",
    "two slashes": "a/b/c=d",
    "an empty prefix": "/a=b",
    "an empty name": "a/=b",
    "a name that is too long": "a" * 64 + "=b",
    "a prefix that is too long": "a" * 254 + "/x",
    "a value that is too long": "x=" + "a" * 64,
    "a value with a slash": "x=a/b",
    "letters of another script": "x=ä",
    "double negation": "!!x",
    "a parenthesis for a value": "x=(a)",
}
MATCHES = {
    "": [({"x": "y"}, True), ({}, True)],
    "x=y": [({"x": "y"}, True), ({"x": "z"}, False), ({}, False)],
    "x=y,z=w": [({"x": "y", "z": "w"}, True), ({"x": "w", "z": "w"}, False)],
    "x!=y": [({"x": "z"}, True), ({"x": "y"}, False), ({}, True)],
    "x": [({"x": ""}, True), ({"y": "z"}, False)],
    "!x": [({"y": "z"}, True), ({"x": ""}, False)],
    "x in (a,b)": [({"x": "b"}, True), ({"x": "c"}, False), ({}, False)],
    "x notin (a,b)": [({"x": "c"}, True), ({"x": "a"}, False), ({}, True)],
    "x in ()": [({"x": ""}, True), ({}, False)],
    "x>1": [({"x": "2"}, True), ({"x": "1"}, False), ({"x": "two"}, False), ({}, False)],
    "x<1": [({"x": "0"}, True), ({"x": "-5"}, True), ({"x": "1"}, False), ({"x": " 0"}, False)],
}


@pytest.mark.parametrize("text", READ)
def test_label_selectors_have_one_canonical_text(text: str) -> None:
    selector = parse_label_selector(text)
    assert str(selector) == READ[text]
    assert LabelSelector.parse(str(selector)) == selector


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_label_selectors_are_rejected(case: str) -> None:
    with pytest.raises(SelectorError, match="label"):
        LabelSelector.parse(REFUSED[case])


@pytest.mark.parametrize("text", MATCHES)
def test_labels_are_matched(text: str) -> None:
    for labels, want in MATCHES[text]:
        assert LabelSelector.parse(text).matches(labels) is want, labels


def test_error_points_at_the_position() -> None:
    with pytest.raises(SelectorError, match=r"'x in \(a b\)': found 'b', expected ',' or '\)'"):
        LabelSelector.parse("x in (a b)")


def test_selector_objects() -> None:
    selector = LabelSelector.from_dict(
        {
            "matchLabels": {"b": "1"},
            "matchExpressions": [
                {"key": "a", "operator": "In", "values": ["y", "x"]},
                {"key": "c", "operator": "DoesNotExist"},
                {"key": "d", "operator": "Exists", "values": []},
                {"key": "e", "operator": "NotIn", "values": ["z"]},
            ],
        }
    )
    assert str(selector) == "a in (x,y),b=1,!c,d,e notin (z)"
    assert selector.matches({"a": "x", "b": "1", "d": ""})
    assert not selector.matches({"a": "x", "b": "1", "d": "", "c": ""})


def test_missing_selector_matches_nothing_and_empty_selector_everything() -> None:
    assert LabelSelector.from_dict(None) == NOTHING
    assert not NOTHING.matches({})
    assert not NOTHING.matches_everything
    objects: list[Object] = [{}, {"matchLabels": None, "matchExpressions": []}]
    for empty in objects:
        assert LabelSelector.from_dict(empty) == EVERYTHING
    assert EVERYTHING.matches(None)
    assert EVERYTHING.matches_everything


BAD_OBJECTS: dict[str, Any] = {
    "an unknown operator": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]},
    "In without values": {"matchExpressions": [{"key": "a", "operator": "In"}]},
    "Exists with values": {
        "matchExpressions": [{"key": "a", "operator": "Exists", "values": [""]}]
    },
    "no key": {"matchExpressions": [{"operator": "Exists"}]},
    "no object": {"matchExpressions": ["a"]},
    "a number for a value": {"matchLabels": {"a": 1}},
    "a bad value": {"matchLabels": {"a": "b c"}},
}


@pytest.mark.parametrize("case", BAD_OBJECTS)
def test_invalid_selector_objects_are_rejected(case: str) -> None:
    with pytest.raises(SelectorError):
        LabelSelector.from_dict(BAD_OBJECTS[case])


def test_equality_with_given_labels() -> None:
    selector = LabelSelector.from_labels({"b": "2", "a": "1"})
    assert str(selector) == "a=1,b=2"
    assert LabelSelector.from_labels(None) == EVERYTHING


def test_required_label_value_is_known_for_index_lookups() -> None:
    selector = LabelSelector.parse("a=1,b in (2),c in (3,4),d!=5")
    assert [selector.get(key) for key in "abcdx"] == ["1", "2", None, None, None]


def test_invalid_keys_and_values_have_a_reason() -> None:
    assert label_key_problem("example.com/a.b_c-D") is None
    assert "lowercase DNS" in (label_key_problem("-x/a") or "")
    assert label_value_problem("") is None
    assert "63" in (label_value_problem("a" * 64) or "")


names = st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,5}[A-Za-z0-9])?", fullmatch=True)
keys = st.one_of(names, st.builds("example.com/{}".format, names))
values = st.one_of(st.just(""), names)
requirements = st.one_of(
    st.builds(Requirement.checked, keys, st.sampled_from(["=", "==", "!="]), st.tuples(values)),
    st.builds(
        Requirement.checked,
        keys,
        st.sampled_from(["in", "notin"]),
        st.lists(values, min_size=1, max_size=4),
    ),
    st.builds(Requirement.checked, keys, st.sampled_from(["exists", "!"])),
    st.builds(
        Requirement.checked,
        keys,
        st.sampled_from([">", "<"]),
        st.tuples(st.integers(0, 2**63 - 1).map(str)),
    ),
)
label_maps = st.dictionaries(keys, values, max_size=5)


@given(st.lists(requirements, max_size=5), label_maps)
def test_printed_label_selector_parses_to_the_same_selector(
    parts: list[Requirement], labels: dict[str, str]
) -> None:
    text = ",".join(map(str, parts))
    selector = LabelSelector.parse(text)
    assert LabelSelector.parse(str(selector)) == selector
    assert selector.matches(labels) == all(part.matches(labels) for part in parts)


@given(st.text(alphabet="ab=!<>(), in\t/.-", max_size=14))
def test_any_text_parses_or_is_rejected_as_label_selector(text: str) -> None:
    try:
        selector = LabelSelector.parse(text)
    except SelectorError:
        return
    assert LabelSelector.parse(str(selector)) == selector


FIELDS = {
    "metadata.name=x": (FieldTerm("metadata.name", "=", "x"),),
    "metadata.name==x": (FieldTerm("metadata.name", "=", "x"),),
    "b!=2,a=1": (FieldTerm("a", "=", "1"), FieldTerm("b", "!=", "2")),
    "": (),
    "a=1,": (FieldTerm("a", "=", "1"),),
    ",a=1": (FieldTerm("a", "=", "1"),),
    "a=": (FieldTerm("a", "=", ""),),
    r"k=\,,k2=v2": (FieldTerm("k2", "=", "v2"), FieldTerm("k", "=", ",")),
    r"k=\\,k2=v2": (FieldTerm("k2", "=", "v2"), FieldTerm("k", "=", "\\")),
    r"k=\\\,,k2=v2": (FieldTerm("k2", "=", "v2"), FieldTerm("k", "=", "\\,")),
    r"x=a||y\=b": (FieldTerm("x", "=", "a||y=b"),),
    "함=수,목=록": (FieldTerm("목", "=", "록"), FieldTerm("함", "=", "수")),
}
BAD_FIELDS = {
    "an equal sign in a value": "x=a||y=b",
    "two comparisons": "x==a==b",
    "no comparison": "x=a,b",
    "set notation": "x in (a)",
    "a name alone": "x",
    "an unknown escape": r"k=\a",
    "a backslash at the end": "k=\\",
    "an odd number of backslashes": "k=\\\\\\",
}


@pytest.mark.parametrize("text", FIELDS)
def test_field_selectors_are_parsed(text: str) -> None:
    selector = parse_field_selector(text)
    assert selector.terms == FIELDS[text]
    assert FieldSelector.parse(str(selector)) == selector


@pytest.mark.parametrize("case", BAD_FIELDS)
def test_invalid_field_selectors_are_rejected(case: str) -> None:
    with pytest.raises(SelectorError, match="field selector"):
        FieldSelector.parse(BAD_FIELDS[case])


def test_fields_are_matched_through_a_getter() -> None:
    pod = {"metadata.name": "a", "status.phase": "Running"}

    def selects(text: str) -> bool:
        return FieldSelector.parse(text).matches(lambda field: pod.get(field, ""))

    assert selects("metadata.name=a,status.phase=Running")
    assert not selects("metadata.name=a,status.phase!=Running")
    assert selects("spec.nodeName=")
    assert selects("")
    assert FieldSelector.parse("").matches_everything


def test_required_field_value_is_known_for_index_lookups() -> None:
    selector = FieldSelector.parse("metadata.name=x,spec.nodeName!=y")
    assert selector.get("metadata.name") == "x"
    assert selector.get("spec.nodeName") is None
    assert selector.get("status.phase") is None


@given(st.text(max_size=20))
def test_any_value_survives_escaping(value: str) -> None:
    assert FieldSelector.parse("f=" + escape_field_value(value)).get("f") == value

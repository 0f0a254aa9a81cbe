"""YAML from untrusted sources: the same values as PyYAML, and limits before any harm."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import hekla
from hekla.units import bounded_yaml
from hekla.units.bounded_yaml import BODY, CONFIG, FILE, Limits, YAMLError, load, load_all

DEEP = {
    "brackets": "[" * 1_000_000,
    "closed brackets": "[" * 60_000 + "]" * 60_000,
    "braces": "{a: " * 60_000,
    "block lists": "- " * 1_000_000 + "x",
    "explicit keys": "? " * 1_000_000 + "x",
    "indented maps": "".join(" " * level + "a:\n" for level in range(1_500)),
    "tags": "!!seq [" * 60_000,
    "anchors": "".join(f"&a{number} [" for number in range(60_000)),
}
NESTED_ALIASES = "a0: &a0 [x]\n" + "".join(
    f"a{number}: &a{number} [*a{number - 1}]\n" for number in range(1, 5_000)
)
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize("limits", [BODY, FILE, CONFIG], ids=["body", "file", "config"])
@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_deep_text_is_refused_before_it_is_composed(text: str, limits: Limits) -> None:
    with pytest.raises(YAMLError, match=r"nested deeper than \d+ levels|a list or map is no key"):
        load_all(text, limits)


def test_depth_at_the_limit_is_read() -> None:
    depth = FILE.depth
    assert load("[" * depth + "]" * depth, FILE) is not None
    with pytest.raises(YAMLError, match="nested deeper than 200 levels"):
        load("[" * (depth + 1) + "]" * (depth + 1), FILE)


def test_aliases_count_as_what_they_stand_for() -> None:
    with pytest.raises(YAMLError, match="more than 2000000 values, aliases expanded"):
        load(BOMB, FILE)
    with pytest.raises(YAMLError, match="nested deeper than"):
        load(NESTED_ALIASES, FILE)
    text = "a: &a " + "x" * 1_000_000 + "\nb: [" + "*a, " * 100 + "]"
    with pytest.raises(YAMLError, match="stands for more than"):
        load(text, FILE)
    with pytest.raises(YAMLError, match="no finished anchor"):
        load("a: &a [*a]", FILE)


def test_request_bodies_have_no_aliases_and_limited_values() -> None:
    with pytest.raises(YAMLError, match="aliases are not accepted"):
        load("a: &a 1\nb: *a", BODY)
    with pytest.raises(YAMLError, match="more than 50000 values"):
        load("\n".join(f"k{number}: 1" for number in range(200_000)), BODY)
    with pytest.raises(YAMLError, match="has 3145729 bytes, 3145728 are allowed"):
        load(b"x" * (BODY.size + 1), BODY)


def test_numbers_that_cost_quadratic_time_are_text() -> None:
    base_60 = "1" + ":59" * 500_000
    assert load(base_60, BODY) == base_60
    assert load("190:20:30", BODY) == "190:20:30"  # as in Go
    assert load("9" * 100_000, BODY) == "9" * 100_000


def test_keys_are_text_and_cannot_be_made_to_collide() -> None:
    modulus = (1 << 61) - 1  # Python hashes its multiples to zero
    text = "\n".join(f"{number * modulus}: 1" for number in range(3))
    assert load(text, BODY) == {"0": 1, str(modulus): 1, str(2 * modulus): 1}
    assert load("{1: a, true: b, 1.5: c}", BODY) == {"1": "a", "true": "b", "1.5": "c"}
    with pytest.raises(YAMLError, match="a key must be text"):
        load("~: 1", BODY)


def test_values_have_the_types_of_json() -> None:
    text = "{a: 2026-01-01, b: 0x1F, c: 017, d: yes, e: ~, f: 1.5, g: -0b11, h: 1_000, i: '3'}"
    want = {"a": "2026-01-01", "b": 31, "c": 15, "d": True, "e": None, "f": 1.5, "g": -3,
            "h": 1000, "i": "3"}  # fmt: skip
    assert load(text, BODY) == want
    assert load("!!str 3", BODY) == "3"
    assert load("18446744073709551616", BODY) == 2.0**64
    for wrong in (".inf", ".nan", "!!python/object:os.system x", "!!binary aGk=", "!!int x"):
        with pytest.raises(YAMLError):
            load(wrong, BODY)


def test_merge_keys_give_defaults() -> None:
    text = "base: &base {a: 1, b: 2}\nmore: &more {c: 3}\nuse: {<<: [*base, *more], b: 5}"
    assert load(text, FILE)["use"] == {"a": 1, "b": 5, "c": 3}
    assert load("'<<': 1", FILE) == {"<<": 1}


def test_duplicate_keys_are_found_with_path_and_line() -> None:
    _, duplicates = bounded_yaml.load_with_duplicates("a:\n- b: 1\n  b: 2\n", BODY)
    assert [(each.path, each.key, each.line) for each in duplicates] == [("a[0].b", "b", 3)]


def test_the_line_of_a_duplicate_is_the_one_of_its_key_in_any_document() -> None:
    text = "a: 1\n---\nb: 1\nb:\n  c:\n  - d\ne: 1\n"
    values, duplicates = bounded_yaml.load_all_with_duplicates(text, BODY)
    assert values == [{"a": 1}, {"b": {"c": ["d"]}, "e": 1}]
    assert [(each.path, each.line) for each in duplicates] == [("b", 4)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=20,
)


@given(st.lists(JSON, max_size=3), st.booleans())
def test_what_pyyaml_writes_is_read_as_pyyaml_reads_it(values: list[object], flow: bool) -> None:
    text = yaml.safe_dump_all(values, default_flow_style=flow, sort_keys=False, allow_unicode=True)
    assert load_all(text, FILE) == list(yaml.safe_load_all(text))


def test_no_other_module_calls_a_loader_of_pyyaml() -> None:
    calls = re.compile(
        r"\byaml\.((safe_|full_|unsafe_)?load(_all)?|compose(_all)?|parse|scan)\(|\byaml\.C?\w*Loader\b"
    )
    root = Path(hekla.__file__).parent
    found = [
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if path.name != "bounded_yaml.py" and calls.search(path.read_text())
    ]
    assert found == []

"""Output formats of -o, and tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from hekla.cli.vcctl.errors import CommandFailed
from hekla.cli.vcctl.jsonpath import render
from hekla.cli.vcctl.output import Column, Table, formatted, name_of
from hekla.kube.resources import JOBS
from tests.cli.conftest import Run

Make = Callable[..., dict[str, Any]]

OBJECT: dict[str, Any] = {
    "metadata": {"name": "a", "labels": {"x.y/z": "1"}, "managedFields": [{}]},
    "status": {"state": {"phase": "Running"}, "running": 2, "flags": [True, None]},
}
LIST = {"items": [OBJECT, {"metadata": {"name": "b"}, "status": {}}]}


@pytest.mark.parametrize(
    ("template", "value", "want"),
    {
        "a path": ("{.metadata.name}", OBJECT, "a"),
        "without braces": (".metadata.name", OBJECT, "a"),
        "text around": ("name={.metadata.name};", OBJECT, "name=a;"),
        "a newline": (r'{.metadata.name}{"\n"}', OBJECT, "a\n"),
        "numbers": ("{.status.running}", OBJECT, "2"),
        "objects as JSON": ("{.status.state}", OBJECT, '{"phase":"Running"}'),
        "true and null": ("{.status.flags}", OBJECT, "[true,null]"),
        "a name with dots": (r"{.metadata.labels.x\.y/z}", OBJECT, "1"),
        "what is missing is nothing": ("[{.nope.nope}]", OBJECT, "[]"),
        "many, with blanks": ("{.items[*].metadata.name}", LIST, "a b"),
        "a loop": (
            r'{range .items[*]}{.metadata.name}{"\t"}{.status.running}{"\n"}{end}',
            LIST,
            "a\t2\nb\t\n",
        ),
        "a filter": ('{.items[?(@.metadata.name=="b")].metadata.name}', LIST, "b"),
        "a brace in quotes": ('{"}"}{.metadata.name}', OBJECT, "}a"),
    }.values(),
)
def test_jsonpath_templates(template: str, value: dict[str, Any], want: str) -> None:
    assert render(template, value) == want


@pytest.mark.parametrize("template", ["{.a", "{range .a}x", "{end}", "{.a[}", "{.a[x]}"])
def test_invalid_template_is_rejected_with_an_example(template: str) -> None:
    with pytest.raises(CommandFailed, match="jsonpath:") as refused:
        render(template, OBJECT)
    assert "-o jsonpath='{.metadata.name}'" in refused.value.hint


def test_objects_are_shown_with_kind_and_without_managed_fields() -> None:
    for text in (formatted(JOBS, OBJECT, "json"), formatted(JOBS, OBJECT, "yaml")):
        shown = yaml.safe_load(text)
        assert shown["kind"] == "Job"
        assert shown["apiVersion"] == "batch.volcano.sh/v1alpha1"
        assert shown["metadata"] == {"name": "a", "labels": {"x.y/z": "1"}}


def test_lists_are_lists_even_when_empty() -> None:
    assert json.loads(formatted(JOBS, {"items": []}, "json")) == {
        "apiVersion": "v1",
        "kind": "List",
        "items": [],
    }
    assert formatted(JOBS, LIST, "name") == "job.batch.volcano.sh/a\njob.batch.volcano.sh/b"


def test_columns_are_padded_fixed_or_by_their_longest_cell() -> None:
    columns = (
        Column("Name", name_of, gap=3),
        Column("N", lambda _: 7, 4),
        Column("Last", name_of, 2),
    )
    table = Table(columns, [{"metadata": {"name": "longer"}}])
    assert table.header() == "Name     N   Last"
    assert table.row({"metadata": {"name": "x"}}) == "x        7   x "
    assert table.row({"metadata": {"name": "longer"}}) == "longer   7   longer"


def test_fixed_column_grows_for_long_cells() -> None:
    columns = (Column("Name", name_of, 5), Column("N", lambda _: 7, 4))
    assert Table(columns, [{"metadata": {"name": "12345"}}]).header() == "Name  N   "


def test_formats_of_a_real_list(vcctl: Run, make_job: Make) -> None:
    make_job("one", phase="Running")
    make_job("two")
    listed = json.loads(vcctl("job", "list", "-o", "json").out)
    assert [one["metadata"]["name"] for one in listed["items"]] == ["one", "two"]
    assert all(one["kind"] == "Job" for one in listed["items"])
    assert yaml.safe_load(vcctl("job", "list", "-o", "yaml").out) == listed
    template = "jsonpath={.items[*].metadata.name}"
    assert vcctl("job", "list", "-o", template).out == "one two"
    assert "Queue" in vcctl("job", "list", "-o", "wide").lines[0]
    done = vcctl("job", "list", "-o", "xml")
    assert done.code == 1
    assert "is not one of wide, json, yaml, name, jsonpath" in done.err

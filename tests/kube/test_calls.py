"""Requests as data: safe paths, bodies, and splitting of lines."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.kube import calls, errors
from hekla.kube.resources import CATALOGUE, JOBS, NODES, PODS, resource
from hekla.kube.responses import LineSplitter, WatchReader


def test_paths_follow_the_resource_scheme() -> None:
    assert calls.path_of(PODS) == "/api/v1/pods"
    assert calls.path_of(PODS, "ml", "a", "log") == "/api/v1/namespaces/ml/pods/a/log"
    assert calls.path_of(NODES, "ignored", "n1") == "/api/v1/nodes/n1"
    assert calls.path_of(JOBS, "ml") == "/apis/batch.volcano.sh/v1alpha1/namespaces/ml/jobs"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../secrets/x"])
def test_name_cannot_escape_its_path_segment(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be a name"):
        calls.path_of(PODS, "ml", name)
    with pytest.raises(ValueError, match="cannot be a namespace"):
        calls.path_of(PODS, name)


@given(st.text(min_size=1).filter(lambda s: "/" not in s and s not in (".", "..")))
def test_any_other_name_stays_one_segment_without_query(name: str) -> None:
    try:
        path = calls.path_of(PODS, "ml", name)
    except UnicodeEncodeError:
        return  # lone surrogates are not valid text
    assert path.count("/") == "/api/v1/namespaces/ml/pods/x".count("/")
    assert "?" not in path
    assert "#" not in path


def test_an_object_of_a_namespaced_kind_needs_a_namespace() -> None:
    with pytest.raises(ValueError, match="no namespace was given"):
        calls.path_of(PODS, None, "a")


def test_a_continue_token_excludes_a_version() -> None:
    call = calls.read_list(PODS, limit=5, continue_token="t", resource_version="7")
    assert call.query == (("limit", "5"), ("continue", "t"))


def test_apply_needs_a_field_manager_and_only_apply_can_be_forced() -> None:
    with pytest.raises(ValueError, match="field_manager"):
        calls.patch(PODS, "a", {}, kind="apply", namespace="ml")
    with pytest.raises(ValueError, match="forced"):
        calls.patch(PODS, "a", {}, kind="merge", namespace="ml", force=True)
    with pytest.raises(ValueError, match="kind of patch"):
        calls.patch(PODS, "a", {}, kind="yaml", namespace="ml")  # type: ignore[arg-type]


@pytest.mark.parametrize("body", [{}, {"kind": "Job"}, {"metadata": {"name": "x"}}, b' {"a" :1} '])
def test_whole_objects_are_sent_with_version_and_kind(body: Any) -> None:
    """API servers refuse custom objects without them."""
    given = json.loads(body) if isinstance(body, bytes) else body
    want = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", **given}
    for call in (
        calls.create(JOBS, body, namespace="ml"),
        calls.replace(JOBS, "x", body, namespace="ml"),
        calls.patch(JOBS, "x", body, namespace="ml", kind="apply", field_manager="me"),
    ):
        assert json.loads(call.body or b"") == want
    assert json.loads(calls.patch(JOBS, "x", body, namespace="ml").body or b"") == given


def test_a_call_does_not_show_its_body() -> None:
    call = calls.create(PODS, {"data": "secret"}, namespace="ml")
    assert "secret" not in repr(call)
    assert "secret" not in str(call)


def test_a_plain_delete_has_no_body() -> None:
    assert calls.delete(PODS, "a", namespace="ml").body is None


def test_a_group_version_is_checked() -> None:
    for wrong in ("", "a/b/c", "/v1"):
        with pytest.raises(ValueError, match="not an API version"):
            resource(wrong, "pods")
    with pytest.raises(ValueError, match="plural"):
        resource("v1", "pods/x")


def test_every_resource_of_the_catalogue_has_a_unique_path() -> None:
    places = [(each.api_version, each.plural) for each in CATALOGUE]
    assert len(places) == len(set(places)) > 30


@given(st.lists(st.binary(max_size=20).map(lambda b: b.replace(b"\n", b""))), st.data())
def test_lines_do_not_depend_on_how_they_were_chunked(
    lines: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    splitter = LineSplitter("test")
    found: list[bytes] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += splitter.feed(stream[:size])
        stream = stream[size:]
    assert found == lines
    assert splitter.rest() == b""


def test_endless_line_is_refused() -> None:
    splitter = LineSplitter("watch", max_line_bytes=1000)
    for _ in range(10):
        assert list(splitter.feed(b"x" * 100)) == []
    with pytest.raises(errors.ProtocolError, match="longer than 1000"):
        list(splitter.feed(b"x"))


def test_events_before_an_error_in_the_same_chunk_are_not_lost() -> None:
    reader = WatchReader(dict, "1", "watch")
    events = reader.feed(
        b'{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"2"}}}\n'
        b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n'
    )
    assert next(events).identity.name == "a"
    with pytest.raises(errors.Gone):
        next(events)
    assert reader.resource_version == "2"


@pytest.mark.parametrize("line", [b"[]", b'{"type":"ADDED"}', b'{"type":"ODD","object":{}}'])
def test_line_that_is_not_an_event_is_a_protocol_error(line: bytes) -> None:
    with pytest.raises(errors.ProtocolError):
        list(WatchReader(dict, "1", "watch").feed(line + b"\n"))

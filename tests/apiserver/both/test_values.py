"""Quantities, times, binary data, formats and nulls on hekla's API server and kube-apiserver."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.units.objects import Object
from tests.apiserver.both.conftest import Api
from tests.apiserver.both.test_rules import Define, define, spec, thing

__all__ = ["define"]

DRY = "?dryRun=All"


def pod(name: str = "p", **more: Any) -> Object:
    container = {"name": "c", "image": "i", "resources": more.pop("resources", {})}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **more}}


AMOUNTS: dict[Any, str] = {
    "0.5": "500m",
    "1000m": "1",
    "1024Ki": "1Mi",
    "1024Mi": "1Gi",
    "0.5Gi": "512Mi",
    "1000000k": "1G",
    "0.0001": "1m",
    "1.500": "1.500",
    "+2": "+2",
    "1e3": "1e3",
    " 2 ": "2",
    "1073741824": "1073741824",
    1: "1",
    1.5: "1500m",
    None: "0",
}


@pytest.mark.parametrize("written", AMOUNTS, ids=repr)
def test_a_quantity_is_stored_in_canonical_form(api: Api, namespace: str, written: Any) -> None:
    body = pod(resources={"requests": {"cpu": written}})
    made = api.post(f"/api/v1/namespaces/{namespace}/pods{DRY}", body).ok()
    want = {"cpu": AMOUNTS[written]}
    assert made["spec"]["containers"][0]["resources"]["requests"] == want


def test_a_single_quantity_is_not_rounded(api: Api, namespace: str) -> None:
    body = pod(volumes=[{"name": "v", "emptyDir": {"sizeLimit": "1024Ki"}}])
    made = api.post(f"/api/v1/namespaces/{namespace}/pods{DRY}", body).ok()
    assert made["spec"]["volumes"][0]["emptyDir"] == {"sizeLimit": "1Mi"}


def test_quantities_of_all_core_kinds_are_canonical(api: Api, namespace: str) -> None:
    root = f"/api/v1/namespaces/{namespace}"
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"cpu": "0.5", "memory": "1024Mi"}}}
    made = api.post(f"{root}/resourcequotas", quota).ok()
    assert made["spec"]["hard"] == {"cpu": "500m", "memory": "1Gi"}
    ranges = {"spec": {"limits": [{"type": "Pod", "max": {"cpu": "2000m"}}]}}
    made = api.post(f"{root}/limitranges", {"metadata": {"name": "l"}, **ranges}).ok()
    assert made["spec"]["limits"][0]["max"] == {"cpu": "2"}
    claim = {
        "metadata": {"name": "c"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1024Mi"}},
        },
    }
    made = api.post(f"{root}/persistentvolumeclaims", claim).ok()
    assert made["spec"]["resources"]["requests"] == {"storage": "1Gi"}
    node = {"metadata": {"name": namespace}, "status": {"capacity": {"cpu": "4000m"}}}
    made = api.post(f"/api/v1/nodes{DRY}", node).ok()
    assert (made["status"]["capacity"], made["status"]["allocatable"]) == ({"cpu": "4"},) * 2


def test_an_amount_in_another_notation_is_no_change(api: Api, namespace: str) -> None:
    root = f"/api/v1/namespaces/{namespace}/limitranges"
    one, same = ({"spec": {"limits": [{"type": "Pod", "max": {"cpu": a}}]}} for a in ("1", "1000m"))
    made = api.post(root, {"metadata": {"name": "l"}, **one}).ok()
    patched = api.merge(f"{root}/l", same).ok()
    assert patched["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


@pytest.mark.parametrize("written", ["", "abc", "1 Gi", "1_0", True, [1]], ids=repr)
def test_a_text_that_is_no_quantity_cannot_be_decoded(
    api: Api, namespace: str, written: Any
) -> None:
    body = pod(resources={"requests": {"memory": written}})
    reply = api.post(f"/api/v1/namespaces/{namespace}/pods{DRY}", body)
    assert (reply.status, reply.body["reason"]) == (400, "BadRequest")


BINARY: dict[str, tuple[Any, int, str | None]] = {
    "canonical": ("YQ==", 201, "YQ=="),
    "lines": ("YQ==\n", 201, "YQ=="),
    "unused bits": ("YR==", 201, "YQ=="),
    "null": (None, 201, ""),
    "no padding": ("YQ", 400, None),
    "a space": ("Y Q==", 400, None),
    "other letters": ("!!", 400, None),
}


@pytest.mark.parametrize("case", BINARY)
def test_binary_data_is_decoded(api: Api, namespace: str, case: str) -> None:
    written, want_status, want = BINARY[case]
    root = f"/api/v1/namespaces/{namespace}"
    reply = api.post(f"{root}/secrets{DRY}", {"metadata": {"name": "s"}, "data": {"k": written}})
    assert reply.status == want_status, reply.body
    if want is not None:
        assert reply.ok()["data"] == {"k": want}
    body = {"metadata": {"name": "s"}, "binaryData": {"k": written}}
    assert api.post(f"{root}/configmaps{DRY}", body).status == want_status


TIMES: dict[str, tuple[str, str | None]] = {
    "canonical": ("2020-01-01T00:00:00Z", "2020-01-01T00:00:00Z"),
    "another zone": ("2020-01-01T02:00:00+02:00", "2020-01-01T00:00:00Z"),
    "a fraction": ("2020-01-01T00:00:00.123Z", "2020-01-01T00:00:00Z"),
    "a date": ("2020-01-01", None),
    "small letters": ("2020-01-01t00:00:00z", None),
    "month 13": ("2020-13-01T00:00:00Z", None),
    "empty": ("", None),
}


@pytest.mark.parametrize("case", TIMES)
def test_a_time_is_stored_in_utc(api: Api, namespace: str, case: str) -> None:
    written, want = TIMES[case]
    body = {
        "metadata": {"name": "e"},
        "involvedObject": {"namespace": namespace},
        "firstTimestamp": written,
    }
    reply = api.post(f"/api/v1/namespaces/{namespace}/events{DRY}", body)
    if want is None:
        assert (reply.status, reply.body["reason"]) == (400, "BadRequest")
    else:
        assert reply.ok()["firstTimestamp"] == want


def test_a_micro_time_has_six_digits(api: Api, namespace: str) -> None:
    root = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases{DRY}"
    lease = {"metadata": {"name": "l"}, "spec": {"renewTime": "2020-01-01T02:00:00.000001+02:00"}}
    assert api.post(root, lease).ok()["spec"]["renewTime"] == "2020-01-01T00:00:00.000001Z"
    lease["spec"] = {"renewTime": "2020-01-01T00:00:00Z"}
    assert api.post(root, lease).status == 400


FORMATS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "date-time": (
        ("2020-01-01T00:00:00Z", "2020-01-01t00:00:00.5+02:00"),
        ("2020-01-01", "x", "2020-01-01 00:00:00Z", "2020-01-01T25:00:00Z"),
    ),
    "datetime": (("2020-01-01T00:00:00Z",), ("x",)),
    "byte": (("YQ==",), ("YQ", "!!", "")),
    "date": (("2020-01-01",), ("2020-13-01", "x")),
    "duration": (("1h30m", "3 hours", "1w", "-1h", "1.5h", "1.5 h"), ("5", "x", "", "1year")),
    "ipv4": (("1.2.3.4", "01.2.3.4"), ("1.2.3", "::1")),
    "ipv6": (("::1",), ("1.2.3.4", "x")),
    "cidr": (("1.2.3.0/24", "::/0"), ("x", "1.2.3.4")),
    "mac": (("01:02:03:04:05:06", "0102.0304.0506"), ("x", "01:02-03:04:05:06")),
    "uuid": (("11111111-1111-1111-1111-111111111111", "1" * 32), ("x",)),
    "uuid3": (
        ("11111111-1111-3111-1111-111111111111",),
        ("11111111-1111-1111-1111-111111111111",),
    ),
    "uuid4": (
        ("11111111-1111-4111-8111-111111111111",),
        ("11111111-1111-1111-1111-111111111111",),
    ),
    "uuid5": (
        ("11111111-1111-5111-8111-111111111111",),
        ("11111111-1111-1111-1111-111111111111",),
    ),
    "email": (("a@b.c", "Bob <a@b.c>", "a@b"), ("x", "@b.c")),
    "hostname": (("a.com", "A", "m-host"), ("a.b", "a_b", "-a", "a.", "my-host")),
    "uri": (("http://a/b", "/x", "mailto:a@b"), ("x", "a b", "", "a/b")),
    "bsonobjectid": (("507f1f77bcf86cd799439011",), ("x",)),
    "isbn": (("978-0-306-40615-7", "0-306-40615-2"), ("x",)),
    "isbn10": (("0-306-40615-2",), ("978-0-306-40615-7",)),
    "isbn13": (("978-0-306-40615-7",), ("0-306-40615-2",)),
    "creditcard": (("4111-1111-1111-1111",), ("x", "4111-1111-1111-1112")),
    "ssn": (("078-05-1120",), ("x",)),
    "hexcolor": (("#fff", "fff"), ("x",)),
    "rgbcolor": (("rgb(1,2,3)",), ("x", "rgb(1,2,256)")),
    "k8s-short-name": (("a-b",), ("A_b", "a.b")),
    "k8s-long-name": (("a.b",), ("A_b",)),
    "password": (("x",), ()),
    "nonsense": (("x",), ()),
}


def test_formats_of_a_custom_kind_are_checked(api: Api, define: Define) -> None:
    names = {name: f"f{number}" for number, name in enumerate(FORMATS)}
    path = define(spec({names[n]: {"type": "string", "format": n} for n in FORMATS}))
    for name, (good, bad) in FORMATS.items():
        for text in good:
            reply = api.post(path + DRY, thing(path, spec={names[name]: text}))
            assert reply.ok()["spec"] == {names[name]: text}, name
        for text in bad:
            reply = api.post(path + DRY, thing(path, spec={names[name]: text}))
            assert reply.status == 422, (name, text)
            causes = [(c["reason"], c["field"]) for c in reply.body["details"]["causes"]]
            assert causes == [("FieldValueTypeInvalid", f"spec.{names[name]}")], (name, text)


WRONG: dict[str, tuple[Object, list[tuple[str, str]]]] = {
    "both missing": (
        {},
        [("FieldValueRequired", "spec.req.a"), ("FieldValueRequired", "spec.req.b")],
    ),
    "null is missing": ({"a": None, "b": None}, [("FieldValueRequired", "spec.req.a")]),
    "other types": (
        {"a": 1, "b": "x"},
        [("FieldValueTypeInvalid", "spec.req.a"), ("FieldValueTypeInvalid", "spec.req.b")],
    ),
    "null in a list": (
        {"a": "x", "b": 1, "list": [None]},
        [("FieldValueTypeInvalid", "spec.req.list[0]")],
    ),
}
REQ = {
    "type": "object",
    "required": ["a", "b"],
    "properties": {
        "a": {"type": "string"},
        "b": {"type": "integer", "nullable": True},
        "list": {"type": "array", "items": {"type": "string"}},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
    },
}


def test_missing_and_wrong_types_have_different_causes(api: Api, define: Define) -> None:
    path = define(spec({"req": REQ}))
    for case, (written, want) in WRONG.items():
        reply = api.post(path + DRY, thing(path, spec={"req": written}))
        assert reply.status == 422, case
        causes = sorted((c["reason"], c["field"]) for c in reply.body["details"]["causes"])
        assert causes == want, case  # kube-apiserver has no order of causes


def test_null_of_a_field_that_is_not_nullable_is_dropped(api: Api, define: Define) -> None:
    path = define(spec({"req": REQ}))
    body = {"req": {"a": "x", "b": None, "list": None, "map": {"k": None}}}
    made = api.post(path + DRY, thing(path, spec=body)).ok()
    assert made["spec"] == {"req": {"a": "x", "b": None, "map": {}}}
    assert "spec" not in api.post(path + DRY, thing(path, spec=None)).ok()


def test_metadata_of_a_custom_kind_is_decoded_as_of_any_kind(api: Api, define: Define) -> None:
    path = define(spec({}))
    for metadata in ({"labels": {"a": 1}}, {"creationTimestamp": "x"}, {"finalizers": "x"}):
        body = thing(path)
        body["metadata"] |= metadata
        reply = api.post(path + DRY, body)
        assert (reply.status, reply.body["reason"]) == (400, "BadRequest"), metadata
    body = thing(path)
    body["metadata"]["labels"] = {"a": None}
    assert api.post(path + DRY, body).ok()["metadata"]["labels"] == {"a": ""}


def test_a_limit_range_without_a_name_gets_one(api: Api, namespace: str) -> None:
    body = {"spec": {"limits": [{"type": "Pod", "max": {"cpu": "2"}}]}}
    made = api.post(f"/api/v1/namespaces/{namespace}/limitranges{DRY}", body).ok()
    assert len(made["metadata"]["name"]) == 36

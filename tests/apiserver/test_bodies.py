"""Request bodies in JSON, YAML and protobuf."""

from __future__ import annotations

import struct

import pytest

from hekla.apiserver.endpoints import bodies, protobuf
from hekla.apiserver.errors import StatusError
from hekla.apiserver.registry.options import Options


def options(validation: str) -> Options:
    return Options(field_validation=validation, find_duplicates=True)


REPEATED = {
    "at the top": (b'{"a":1,"a":2}', ["a"]),
    "in an object": (b'{"data":{"x":{"a":1,"b":0,"a":2}}}', ["data.x.a"]),
    "in a list": (b'{"l":[{"a":1},{"a":1,"a":2}]}', ["l[1].a"]),
    "three times": (b'{"a":1,"a":2,"a":3}', ["a"]),
    "nowhere": (b'{"a":{"a":{"a":1}},"b":[{"a":1},{"a":1}]}', []),
}


@pytest.mark.parametrize("media", [bodies.JSON, bodies.YAML])
@pytest.mark.parametrize("case", REPEATED)
def test_duplicate_field_is_reported_by_path(case: str, media: str) -> None:
    body, want_paths = REPEATED[case]
    requested = options("Warn")
    bodies.read(body, media, requested)
    assert requested.duplicates == [f'duplicate field "{path}"' for path in want_paths]


def test_duplicate_yaml_fields_are_reported() -> None:
    requested = options("Warn")
    assert bodies.read(b"a: {b: 1, b: 2}\n", bodies.YAML, requested) == {"a": {"b": 2}}
    assert requested.duplicates == ['duplicate field "a.b"']
    with pytest.raises(StatusError, match='line 2: key "b" already set in map'):
        bodies.refuse_duplicates(b"l:\n- {b: 1, b: 2}\n")


def test_yaml_aliases_are_refused() -> None:
    bomb = b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"
    with pytest.raises(StatusError, match="aliases are not accepted"):
        bodies.read(bomb, bodies.YAML, None)


def test_ampersand_and_asterisk_in_text_are_not_aliases() -> None:
    assert bodies.read(b"a: 'fish & chips *'\n", bodies.YAML, None) == {"a": "fish & chips *"}


def test_yaml_timestamps_stay_strings() -> None:
    body = b"a: 2026-01-01\nb: 2026-01-01T00:00:00Z\nc: yes\nd: 0x10\n"
    assert bodies.read(body, bodies.YAML, None) == {
        "a": "2026-01-01", "b": "2026-01-01T00:00:00Z", "c": True, "d": 16,
    }  # fmt: skip


def test_json_sent_as_yaml_keeps_its_emoji() -> None:
    assert bodies.read(b'{"a":"\\ud83d\\ude00"}', bodies.YAML, None) == {"a": "\U0001f600"}
    assert bodies.read(b"{a: b}", bodies.YAML, None) == {"a": "b"}


# Protobuf


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def field(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def envelope(api_version: str, kind: str, message: bytes) -> bytes:
    names = field(1, api_version) + field(2, kind)
    return b"k8s\x00" + field(1, names) + field(2, message) + field(3, "") + field(4, "")


def test_a_config_map_in_protobuf() -> None:
    metadata = field(1, "c") + field(2, "") + field(7, 0) + field(8, b"")
    entry = field(1, "a") + field(2, "1")
    label = field(1, "k") + field(2, "v")
    message = field(1, metadata + field(11, label)) + field(2, entry)
    body = envelope("v1", "ConfigMap", message)
    assert bodies.read(body, protobuf.MEDIA_TYPE, None) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "labels": {"k": "v"}},
        "data": {"a": "1"},
    }


def test_protobuf_zero_is_kept_for_pointer_fields_only() -> None:
    spec = field(1, 0) + field(5, 0) + field(7, 0)  # replicas, minReadySeconds, paused
    read = protobuf.read(envelope("apps/v1", "Deployment", field(2, spec)))
    assert read["spec"] == {"replicas": 0}


def test_types_with_a_special_json_form() -> None:
    # Service: ports[0] = {port: 80, targetPort: "http"}, a time, and a quantity in a pod.
    port = field(3, 80) + field(4, field(1, 1) + field(2, 0) + field(3, "http"))
    service = protobuf.read(envelope("v1", "Service", field(2, field(1, port))))
    assert service["spec"]["ports"] == [{"port": 80, "targetPort": "http"}]
    limits = field(1, "cpu") + field(2, field(1, "500m"))
    container = field(1, "c") + field(8, field(1, limits))
    pod = protobuf.read(envelope("v1", "Pod", field(2, field(2, container))))
    assert pod["spec"]["containers"] == [{"name": "c", "resources": {"limits": {"cpu": "500m"}}}]
    secret = protobuf.read(
        envelope("v1", "Secret", field(2, field(1, "k") + field(2, b"\x00\xff")))
    )
    assert secret["data"] == {"k": "AP8="}
    lease_spec = field(1, "me") + field(4, field(1, 60) + field(2, 5000))
    lease = protobuf.read(envelope("coordination.k8s.io/v1", "Lease", field(2, lease_spec)))
    assert lease["spec"] == {"holderIdentity": "me", "renewTime": "1970-01-01T00:01:00.000005Z"}
    metadata = field(9, field(1, 60))
    read = protobuf.read(envelope("v1", "ConfigMap", field(1, metadata)))
    assert read["metadata"]["deletionTimestamp"] == "1970-01-01T00:01:00Z"


def test_negative_numbers_and_unknown_protobuf_fields() -> None:
    body = envelope("scheduling.k8s.io/v1", "PriorityClass", field(2, -5) + field(999, "new"))
    assert protobuf.read(body)["value"] == -5


def test_delete_options_are_decoded_in_any_group() -> None:
    body = envelope("apps/v1", "DeleteOptions", field(1, 0) + field(4, "Foreground"))
    read = protobuf.read(body)
    assert (read["gracePeriodSeconds"], read["propagationPolicy"]) == (0, "Foreground")


BROKEN = {
    "no magic number": b"{}",
    "a field that is longer than the body": b"k8s\x00\x0a\xff\x01",
    "an endless varint": b"k8s\x00" + b"\xff" * 12,
    "an unused wire type": b"k8s\x00\x0b",
    "text that is not UTF-8": envelope("v1", "ConfigMap", field(1, field(1, b"\xff\xfe"))),
    "a number instead of text": envelope("v1", "ConfigMap", field(1, field(1, 5))),
    "text instead of a number": envelope("v1", "Pod", field(1, field(7, "x"))),
    "text instead of a message": envelope("v1", "Pod", struct.pack("<B", 8) + varint(3)),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_protobuf_is_a_bad_request(case: str) -> None:
    with pytest.raises(StatusError) as caught:
        protobuf.read(BROKEN[case])
    assert caught.value.code == 400


def test_protobuf_of_an_unknown_kind_is_unsupported() -> None:
    with pytest.raises(StatusError) as caught:
        protobuf.read(envelope("example.com/v1", "Thing", b""))
    assert caught.value.code == 415

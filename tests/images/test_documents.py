"""Indexes, manifests and configurations are decoded with bounds, in both vocabularies."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.images.documents import (
    MAX_DOCUMENT_BYTES,
    Index,
    Manifest,
    check_digest,
    decode_config,
    decode_manifest,
    digest_of,
    encode_manifest,
)
from hekla.images.errors import DigestMismatch, InvalidImage, UnsupportedImage

A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64
OCI = "application/vnd.oci.image."
DOCKER = "application/vnd.docker.distribution."
LAYER = OCI + "layer.v1.tar+gzip"


def manifest(**changed: Any) -> bytes:
    body = {
        "schemaVersion": 2,
        "mediaType": OCI + "manifest.v1+json",
        "config": {"mediaType": OCI + "config.v1+json", "digest": A, "size": 2},
        "layers": [{"mediaType": LAYER, "digest": B, "size": 10}],
    }
    return json.dumps({**body, **changed}).encode()


def config(container: dict[str, Any] | None = None, **changed: Any) -> bytes:
    body = {
        "architecture": "amd64",
        "os": "linux",
        "config": container,
        "rootfs": {"type": "layers", "diff_ids": [A]},
    }
    return json.dumps({**body, **changed}).encode()


def layers(*, number: int = 1, media_type: str = LAYER, **changed: Any) -> list[dict[str, Any]]:
    return [{"mediaType": media_type, "digest": B, "size": 1, **changed}] * number


def test_manifest_of_oci_has_a_configuration_and_layers() -> None:
    found = decode_manifest(manifest(annotations={"a": "b"}), "x")
    assert isinstance(found, Manifest)
    assert (found.config.digest, [layer.digest for layer in found.layers]) == (A, [B])
    assert found.size == 12


def test_manifest_of_docker_is_the_same() -> None:
    data = manifest(
        mediaType=DOCKER + "manifest.v2+json",
        config={
            "mediaType": "application/vnd.docker.container.image.v1+json",
            "digest": A,
            "size": 2,
        },
        layers=layers(media_type="application/vnd.docker.image.rootfs.diff.tar.gzip"),
    )
    assert isinstance(decode_manifest(data, "x"), Manifest)


@pytest.mark.parametrize("kind", [OCI + "index.v1+json", DOCKER + "manifest.list.v2+json", ""])
def test_index_has_manifests_with_platforms(kind: str) -> None:
    entry = {"digest": A, "size": 3, "platform": {"architecture": "arm64", "os": "linux"}}
    data = json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": [entry]}).encode()
    found = decode_manifest(data, "x")
    assert isinstance(found, Index)
    assert str(found.manifests[0].platform) == "linux/arm64"


def test_lists_that_go_writes_as_null_are_empty() -> None:
    found = decode_manifest(manifest(layers=None), "x")
    assert isinstance(found, Manifest)
    assert found.layers == ()
    read = decode_config(config({"Env": None, "Cmd": None, "Volumes": None}), "x")
    assert (read.env, read.cmd, read.volumes) == ((), (), ())
    assert decode_config(config(None), "x").entrypoint == ()


MALFORMED = {
    "no JSON": (b"{", "cannot be read"),
    "not UTF-8": (b'{"mediaType": "\xff"}', "cannot be read"),
    "a list": (b"[]", "cannot be read"),
    "very deep": (b'{"a":' * 100_000, "cannot be read"),
    "too large": (b" " * (MAX_DOCUMENT_BYTES + 1), "larger than 4 MiB"),
    "no schema version": (manifest(schemaVersion=0), "schemaVersion 0"),
    "index and manifest at once": (manifest(manifests=[]), "both an index and a manifest"),
    "type of an index": (manifest(mediaType=OCI + "index.v1+json"), "fields of a manifest"),
    "no configuration": (manifest(config=None), "neither an index nor"),
    "too many layers": (manifest(layers=layers(number=128)), "128 layers; 127 is the limit"),
    "no digest": (manifest(layers=layers(digest="sha256:abc")), "not a digest"),
    "digest that is a path": (manifest(layers=layers(digest="../../etc/passwd")), "not a digest"),
    "unknown digest": (manifest(layers=layers(digest="md5:" + "a" * 32)), "not a digest"),
    "negative size": (manifest(layers=layers(size=-1)), "size of -1 bytes"),
    "size beyond any disk": (manifest(layers=layers(size=1 << 62)), "bytes are allowed|allowed"),
    "a size that is text": (manifest(layers=layers(size="1")), "cannot be read"),
    "a configuration of 5 MiB": (
        manifest(config={"digest": A, "size": 5 << 20}),
        "size of 5242880",
    ),
}


@pytest.mark.parametrize(("data", "why"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_manifests_are_refused(data: bytes, why: str) -> None:
    with pytest.raises(InvalidImage, match=f"(?s)^the manifest of x.*{why}"):
        decode_manifest(data, "the manifest of x")


UNSUPPORTED = {
    "schema 1": (manifest(schemaVersion=1, fsLayers=[]), "schema 1"),
    "a chart": (
        manifest(
            config={"mediaType": "application/vnd.cncf.helm.config.v1+json", "digest": A, "size": 2}
        ),
        "not a container image",
    ),
    "an unknown document": (manifest(mediaType="text/html"), "'text/html'"),
    "an encrypted layer": (manifest(layers=layers(media_type=LAYER + "+encrypted")), "encrypted"),
    "a Windows layer": (
        manifest(
            layers=layers(media_type="application/vnd.docker.image.rootfs.foreign.diff.tar.gzip")
        ),
        "Windows",
    ),
}


@pytest.mark.parametrize(("data", "why"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_documents_of_other_kinds_are_unsupported(data: bytes, why: str) -> None:
    with pytest.raises(UnsupportedImage, match=why):
        decode_manifest(data, "x")


def test_configuration_says_how_containers_start() -> None:
    found = decode_config(
        config(
            {
                "Entrypoint": ["/init"],
                "Cmd": ["-v"],
                "Env": ["PATH=/bin", "EMPTY=", "no-value", "=x"],
                "User": "1000:100",
                "WorkingDir": "/w",
                "StopSignal": "SIGRTMIN+3",
                "Volumes": {"/b": {}, "/a": {}},
                "ExposedPorts": {"80/tcp": {}, "53/udp": {}},
                "Labels": {"a": "b"},
            }
        ),
        "x",
    )
    assert (found.entrypoint, found.cmd) == (("/init",), ("-v",))
    assert found.env == ("PATH=/bin", "EMPTY=")
    assert (found.user, found.working_dir, found.stop_signal) == ("1000:100", "/w", "SIGRTMIN+3")
    assert (found.volumes, found.exposed_ports) == (("/a", "/b"), ("53/udp", "80/tcp"))
    assert (str(found.platform), found.diff_ids) == ("linux/amd64", (A,))


BAD_CONFIGS = {
    "no root": (b"{}", "rootfs"),
    "a root of another type": (config(rootfs={"type": "zfs", "diff_ids": []}), "'zfs'"),
    "a diff id that is a path": (config(rootfs={"diff_ids": ["/etc"]}), "not a digest"),
    "too many layers": (config(rootfs={"diff_ids": [A] * 128}), "128 layers"),
    "a zero byte": (config({"Env": ["A=\0"]}), "zero byte"),
    "a stop signal of words": (config({"StopSignal": "sh -c"}), "stop signal"),
    "a port of words": (config({"ExposedPorts": {"http": {}}}), "not a port"),
    "a command that is a text": (config({"Cmd": "sh"}), "cannot be read"),
}


@pytest.mark.parametrize(("data", "why"), BAD_CONFIGS.values(), ids=BAD_CONFIGS)
def test_malformed_configurations_are_refused(data: bytes, why: str) -> None:
    with pytest.raises(InvalidImage, match=why):
        decode_config(data, "x")


def test_bytes_with_another_digest_are_refused() -> None:
    check_digest(b"x", digest_of(b"x"), "x")
    with pytest.raises(
        DigestMismatch, match=r"blob 1: its bytes have the digest sha256:2d711642b726…"
    ):
        check_digest(b"x", A, "blob 1")
    with pytest.raises(DigestMismatch):
        check_digest(b"x", "sha512:" + "0" * 128, "blob 1")


def test_manifest_that_is_made_reads_back() -> None:
    found = decode_manifest(manifest(), "x")
    assert isinstance(found, Manifest)
    assert decode_manifest(encode_manifest(found.config, found.layers), "x") == found


FIELDS = st.sampled_from(
    ["schemaVersion", "mediaType", "config", "layers", "manifests", "digest", "rootfs", "diff_ids"]
)
JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4),
)


@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    for decode in (decode_manifest, decode_config):
        try:
            decode(data, "x")
        except InvalidImage:
            continue

"""The JSON documents of an image: index, manifest and configuration.

Both vocabularies are read: OCI, and Docker's version 2 schema 2. Annotations and labels are
ignored. Every document is bounded, and every digest and size in it is checked for its form.

Note: a document is what its bytes say, not what a registry calls it. One that could be read both as
an index and as a manifest is refused (CVE-2021-41190).
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec

from hekla.images.errors import DigestMismatch, InvalidImage, UnsupportedImage
from hekla.images.reference import is_digest

__all__ = [
    "Descriptor",
    "ImageConfig",
    "Index",
    "Manifest",
    "check_digest",
    "decode_config",
    "decode_document",
    "decode_manifest",
    "digest_of",
    "encode_manifest",
]

MAX_DOCUMENT_BYTES: Final = 4 << 20
"""As containerd and registries."""
MAX_LAYERS: Final = 127
"""As Docker; overlayfs has a limit of 500."""
MAX_MANIFESTS: Final = 1000
MAX_LAYER_BYTES: Final = 1 << 40

_OCI = "application/vnd.oci.image."
_DOCKER = "application/vnd.docker.distribution."
OCI_MANIFEST: Final = _OCI + "manifest.v1+json"
INDEX_TYPES: Final = (_OCI + "index.v1+json", _DOCKER + "manifest.list.v2+json")
MANIFEST_TYPES: Final = (OCI_MANIFEST, _DOCKER + "manifest.v2+json")
OCI_CONFIG: Final = _OCI + "config.v1+json"
CONFIG_TYPES: Final = (OCI_CONFIG, "application/vnd.docker.container.image.v1+json")
OCI_LAYER: Final = _OCI + "layer.v1.tar"
SIF_CONFIG: Final = "application/vnd.sylabs.sif.config.v1+json"
SIF_LAYER: Final = "application/vnd.sylabs.sif.layer.v1.sif"
_LAYER_TYPES: Final = (OCI_LAYER, "application/vnd.docker.image.rootfs.diff.tar")
_COMPRESSIONS: Final = ("", "+gzip", "+zstd", ".gzip", ".zstd")

_STOP_SIGNAL = re.compile(r"[A-Z0-9+-]{0,20}")
_PORT = re.compile(r"[0-9]{1,5}(?:-[0-9]{1,5})?(?:/(?:tcp|udp|sctp))?")

_T = TypeVar("_T")


class Platform(msgspec.Struct, frozen=True):
    """The kind of machine that an image is built for."""

    architecture: str = ""
    os: str = ""
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in (self.os, self.architecture, self.variant) if part)


class Descriptor(msgspec.Struct, frozen=True, rename="camel"):
    """A blob by digest and size."""

    digest: str
    size: int
    media_type: str = ""
    platform: Platform | None = None


class Index(msgspec.Struct, frozen=True):
    """The manifests of one image for several platforms."""

    manifests: tuple[Descriptor, ...]


class Manifest(msgspec.Struct, frozen=True):
    """The configuration and the layers of an image, bottom layer first."""

    config: Descriptor
    layers: tuple[Descriptor, ...]

    @property
    def size(self) -> int:
        """The number of bytes of its blobs."""
        return self.config.size + sum(layer.size for layer in self.layers)


class ImageConfig(msgspec.Struct, frozen=True):
    """What an image says about its containers, and the diff ids of its layers."""

    platform: Platform
    diff_ids: tuple[str, ...]
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    """Arguments of the entrypoint, or the whole command without one."""
    env: tuple[str, ...] = ()
    """NAME=value, in order."""
    user: str = ""
    working_dir: str = ""
    stop_signal: str = ""
    volumes: tuple[str, ...] = ()
    exposed_ports: tuple[str, ...] = ()


# Go writes an empty list or map as null.


class _Any(msgspec.Struct):
    schemaVersion: int = 0
    mediaType: str | None = None
    config: Descriptor | None = None
    layers: tuple[Descriptor, ...] | None = None
    manifests: tuple[Descriptor, ...] | None = None
    fsLayers: Any = None


class _RootFs(msgspec.Struct):
    type: str = ""
    diff_ids: tuple[str, ...] | None = None


class _ContainerConfig(msgspec.Struct, rename="pascal"):
    entrypoint: tuple[str, ...] | None = None
    cmd: tuple[str, ...] | None = None
    env: tuple[str, ...] | None = None
    user: str | None = None
    working_dir: str | None = None
    stop_signal: str | None = None
    volumes: dict[str, Any] | None = None
    exposed_ports: dict[str, Any] | None = None


class _Config(msgspec.Struct):
    rootfs: _RootFs
    architecture: str | None = None
    os: str | None = None
    variant: str | None = None
    config: _ContainerConfig | None = None


def digest_of(data: bytes) -> str:
    """Return the sha256 digest of some bytes."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def check_digest(data: bytes, digest: str, what: str) -> None:
    """Raise DigestMismatch unless these bytes have the digest."""
    algorithm, _, want = digest.partition(":")
    found = hashlib.new(algorithm, data).hexdigest()
    if not hmac.compare_digest(found, want):
        raise DigestMismatch(
            f"{what}: its bytes have the digest {algorithm}:{found[:12]}…, and not {digest[:19]}…; "
            "the registry or file is damaged, or was changed on the way; fetch it again"
        )


def decode_manifest(data: bytes, what: str) -> Index | Manifest:
    """Return an index or a manifest; `what` names it in errors."""
    found = decode_document(data, _Any, what)
    if found.schemaVersion == 1 or found.fsLayers is not None:
        raise UnsupportedImage(
            f"{what} is a manifest of Docker's schema 1, which Docker 28 no longer reads either; "
            "push the image again with a newer Docker, buildah or skopeo"
        )
    if found.schemaVersion != 2:
        raise InvalidImage(f"{what} has schemaVersion {found.schemaVersion}; 2 is expected")
    has_layers = found.config is not None or found.layers is not None
    if has_layers and found.manifests is not None:
        raise InvalidImage(f"{what} is both an index and a manifest; build the image again")
    if found.mediaType in INDEX_TYPES or (not found.mediaType and not has_layers):
        if has_layers:
            raise InvalidImage(f"{what} has the type of an index and the fields of a manifest")
        return _index(found, what)
    if found.mediaType in MANIFEST_TYPES or not found.mediaType:
        return _manifest(found, what)
    raise UnsupportedImage(
        f"{what} has the media type {found.mediaType[:100]!r}, which is not a container image"
    )


def decode_sif_manifest(data: bytes, what: str) -> Descriptor:
    """Return the SIF file that the manifest of an artifact names."""
    found = decode_document(data, _Any, what)
    layers = found.layers or ()
    if [layer.media_type for layer in layers] != [SIF_LAYER]:
        raise UnsupportedImage(
            f"{what} is not a SIF image of one file; leave out oras:// for a container image"
        )
    _check_descriptor(layers[0], MAX_LAYER_BYTES, what)
    if not layers[0].digest.startswith("sha256:"):
        raise UnsupportedImage(f"{what} names its file by another digest than sha256")
    return layers[0]


def decode_config(data: bytes, what: str) -> ImageConfig:
    """Return the configuration of an image."""
    found = decode_document(data, _Config, what)
    diff_ids = found.rootfs.diff_ids or ()
    if found.rootfs.type not in ("layers", ""):
        raise UnsupportedImage(f"{what} has a root of type {found.rootfs.type[:40]!r}, not layers")
    _check_number(len(diff_ids), MAX_LAYERS, "layers", what)
    for diff_id in diff_ids:
        if not is_digest(diff_id):
            raise InvalidImage(f"{what} has a layer {diff_id[:80]!r}, which is not a digest")
    container = found.config or _ContainerConfig()
    config = ImageConfig(
        platform=Platform(found.architecture or "", found.os or "", found.variant or ""),
        diff_ids=diff_ids,
        entrypoint=container.entrypoint or (),
        cmd=container.cmd or (),
        env=tuple(pair for pair in container.env or () if pair.find("=") > 0),
        user=container.user or "",
        working_dir=container.working_dir or "",
        stop_signal=container.stop_signal or "",
        volumes=tuple(sorted(container.volumes or ())),
        exposed_ports=tuple(sorted(container.exposed_ports or ())),
    )
    _check_config(config, what)
    return config


def encode_manifest(config: Descriptor, layers: Iterable[Descriptor]) -> bytes:
    """Return the manifest of an image that has none, such as one of `docker save`."""
    body = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": _plain(config),
        "layers": [_plain(layer) for layer in layers],
    }
    return msgspec.json.encode(body)


def _plain(descriptor: Descriptor) -> dict[str, Any]:
    return {
        "mediaType": descriptor.media_type,
        "digest": descriptor.digest,
        "size": descriptor.size,
    }


def decode_document(data: bytes, kind: type[_T], what: str) -> _T:
    """Return a document as the given type; raise InvalidImage."""
    if len(data) > MAX_DOCUMENT_BYTES:
        raise InvalidImage(f"{what} is larger than {MAX_DOCUMENT_BYTES >> 20} MiB, the limit")
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidImage(f"{what} cannot be read: {error}; build the image again") from error


def _index(found: _Any, what: str) -> Index:
    manifests = found.manifests or ()
    _check_number(len(manifests), MAX_MANIFESTS, "manifests", what)
    for each in manifests:
        _check_descriptor(each, MAX_DOCUMENT_BYTES, what)
    return Index(manifests)


def _manifest(found: _Any, what: str) -> Manifest:
    if found.config is None:
        raise InvalidImage(f"{what} is neither an index nor a manifest with a configuration")
    layers = found.layers or ()
    _check_number(len(layers), MAX_LAYERS, "layers", what)
    _check_descriptor(found.config, MAX_DOCUMENT_BYTES, what)
    if found.config.media_type == SIF_CONFIG:
        raise UnsupportedImage(f"{what} is a SIF image; write oras:// before its name")
    if found.config.media_type not in (*CONFIG_TYPES, ""):
        raise UnsupportedImage(
            f"{what} is not a container image: its configuration has the media type "
            f"{found.config.media_type[:100]!r}; an artifact such as a chart cannot be run"
        )
    for layer in layers:
        _check_descriptor(layer, MAX_LAYER_BYTES, what)
        _check_layer_type(layer.media_type, what)
    return Manifest(found.config, layers)


def _check_layer_type(media_type: str, what: str) -> None:
    for base in _LAYER_TYPES:
        if media_type.startswith(base) and media_type.removeprefix(base) in _COMPRESSIONS:
            return
    raise UnsupportedImage(
        f"{what} has a layer of the media type {media_type[:100]!r}; only tar, gzip and zstd are "
        "read (encrypted layers, and those of Windows that no registry may keep, are not)"
    )


def _check_descriptor(descriptor: Descriptor, most: int, what: str) -> None:
    if not is_digest(descriptor.digest):
        raise InvalidImage(f"{what} names {descriptor.digest[:80]!r}, which is not a digest")
    if not 0 <= descriptor.size <= most:
        raise InvalidImage(
            f"{what} names {descriptor.digest[:19]}… with a size of {descriptor.size} bytes; "
            f"0 to {most} are allowed"
        )


def _check_number(number: int, most: int, things: str, what: str) -> None:
    if number > most:
        raise InvalidImage(f"{what} has {number} {things}; {most} is the limit")


def _check_config(config: ImageConfig, what: str) -> None:
    texts = (*config.entrypoint, *config.cmd, *config.env, *config.volumes)
    if any("\0" in text for text in (*texts, config.user, config.working_dir)):
        raise InvalidImage(f"{what} has a text with a zero byte, which no program can get")
    if not _STOP_SIGNAL.fullmatch(config.stop_signal):
        raise InvalidImage(f"{what} has the stop signal {config.stop_signal[:40]!r}")
    for port in config.exposed_ports:
        if not _PORT.fullmatch(port):
            raise InvalidImage(f"{what} exposes {port[:40]!r}, which is not a port")

"""Layers, images and archives that tests make."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hekla.images.documents import OCI_CONFIG, OCI_LAYER, OCI_MANIFEST, digest_of

NOW = 1_700_000_000


def entry(name: str, kind: bytes = tarfile.REGTYPE, **attributes: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.mtime = NOW
    info.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    for key, value in attributes.items():
        setattr(info, key, value)
    return info


def directory(name: str, **attributes: Any) -> tarfile.TarInfo:
    return entry(name, tarfile.DIRTYPE, **attributes)


def symlink(name: str, target: str) -> tarfile.TarInfo:
    return entry(name, tarfile.SYMTYPE, linkname=target)


def hard_link(name: str, target: str) -> tarfile.TarInfo:
    return entry(name, tarfile.LNKTYPE, linkname=target)


File = tuple[tarfile.TarInfo, bytes]


def file(name: str, data: bytes = b"x", **attributes: Any) -> File:
    return entry(name, size=len(data), **attributes), data


def tar(*members: tarfile.TarInfo | File, format: int = tarfile.PAX_FORMAT) -> bytes:
    """Return a tar archive; a member is an entry, or one with its data."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format) as archive:
        for member in members:
            info, data = member if isinstance(member, tuple) else (member, b"")
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def sha256(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


@dataclass
class BuiltImage:
    """An image with all its blobs, by digest."""

    manifest: bytes
    config: bytes
    blobs: dict[str, bytes]
    layers: list[bytes] = field(default_factory=list)
    """Uncompressed."""

    @property
    def layer_digests(self) -> list[str]:
        """Of the blobs, bottom layer first."""
        return [layer["digest"] for layer in json.loads(self.manifest)["layers"]]

    @property
    def digest(self) -> str:
        return digest_of(self.manifest)


def image(
    *layers: bytes,
    config: Mapping[str, Any] | None = None,
    architecture: str = "amd64",
    compress: bool = True,
) -> BuiltImage:
    """Return an image of these layers."""
    blobs = [gzip.compress(layer, 1, mtime=0) if compress else layer for layer in layers]
    body = {
        "architecture": architecture,
        "os": "linux",
        "config": dict(config or {"Cmd": ["sh"]}),
        "rootfs": {"type": "layers", "diff_ids": [sha256(layer) for layer in layers]},
    }
    encoded = json.dumps(body).encode()
    kind = OCI_LAYER + ("+gzip" if compress else "")
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": descriptor(encoded, OCI_CONFIG),
        "layers": [descriptor(blob, kind) for blob in blobs],
    }
    raw = json.dumps(manifest).encode()
    known = {sha256(data): data for data in (raw, encoded, *blobs)}
    return BuiltImage(raw, encoded, known, list(layers))


def descriptor(data: bytes, media_type: str, **more: Any) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": sha256(data), "size": len(data), **more}


def index(*images: tuple[BuiltImage, str]) -> bytes:
    """Return an index of images with their architectures."""
    entries = [
        descriptor(each.manifest, OCI_MANIFEST, platform={"os": "linux", "architecture": kind})
        for each, kind in images
    ]
    body = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": entries,
    }
    return json.dumps(body).encode()


def write_layout(where: Path, named: Mapping[str, BuiltImage]) -> Path:
    """Write an OCI layout with images by name."""
    blobs = where / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    entries = []
    for name, built in named.items():
        for digest, data in built.blobs.items():
            (blobs / digest.removeprefix("sha256:")).write_bytes(data)
        note = {"org.opencontainers.image.ref.name": name}
        entries.append(descriptor(built.manifest, OCI_MANIFEST, annotations=note))
    (where / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (where / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": entries}))
    return where


def docker_archive(built: BuiltImage, names: Iterable[str] = ()) -> bytes:
    """Return what `docker save` writes."""
    paths = [f"{number}/layer.tar" for number in range(len(built.layers))]
    table = [{"Config": "config.json", "RepoTags": list(names), "Layers": paths}]
    return tar(
        *(file(path, data) for path, data in zip(paths, built.layers, strict=True)),
        file("config.json", built.config),
        file("manifest.json", json.dumps(table).encode()),
    )

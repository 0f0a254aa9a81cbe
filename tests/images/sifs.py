"""SIF files that tests make: a squashfs of mksquashfs, and a header of our own."""

from __future__ import annotations

import json
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from tools import debian

from hekla.images.documents import OCI_MANIFEST, SIF_CONFIG, SIF_LAYER
from hekla.images.platforms import this_machine
from tests.images.builders import BuiltImage, descriptor, sha256

DEFFILE, LABELS, PARTITION = 0x4001, 0x4003, 0x4004
SQUASHFS, EXT3, ENCRYPTED = 1, 2, 5
SYSTEM, PRIMARY = 1, 2
CODES = {"386": b"01", "amd64": b"02", "arm": b"03", "arm64": b"04"}
HEADER_BYTES, DESCRIPTOR_BYTES = 128, 585


def this_code() -> bytes:
    return CODES[this_machine().architecture]


def other_code() -> bytes:
    return CODES["arm64" if this_machine().architecture == "amd64" else "amd64"]


def squashfs(root: Path, *options: str) -> bytes:
    """Return the squashfs of a directory."""
    try:
        program = debian.program("mksquashfs")
    except debian.Missing as error:
        pytest.skip(str(error))
    target = root.with_name(root.name + ".squashfs")
    words = [str(program), str(root), str(target), "-noappend", "-no-progress", "-quiet"]
    subprocess.run([*words, *options], check=True, capture_output=True)
    data = target.read_bytes()
    target.unlink()
    return data


def partition(
    data: bytes,
    *,
    file_system: int = SQUASHFS,
    use: int = PRIMARY,
    code: bytes | None = None,
) -> tuple[int, bytes, bytes]:
    """Return an object of a SIF file: its type, content and extra data."""
    extra = struct.pack("<ii3s", file_system, use, (code or this_code()) + b"\0")
    return PARTITION, data, extra


def sif(*objects: tuple[int, bytes, bytes], slots: int = 48) -> bytes:
    """Return a SIF file with these objects, as Apptainer lays it out."""
    start = HEADER_BYTES + slots * DESCRIPTOR_BYTES
    position, table, content = -(-start // 4096) * 4096, b"", b""
    first = position
    for number, (kind, data, extra) in enumerate(objects, 1):
        padded = -(-len(data) // 4096) * 4096
        table += struct.pack(
            "<i?III7q128s384s", kind, True, number, 1 | 0xF0000000, 0,
            position, len(data), padded, 0, 0, 0, 0, b"object", extra,
        )  # fmt: skip
        content += data.ljust(padded, b"\0")
        position += padded
    header = struct.pack(
        "<32s10s3s3s16s8q", b"#!/usr/bin/env run-singularity\n", b"SIF_MAGIC", b"01",
        this_code(), bytes(16), 0, 0, slots - len(objects), slots, HEADER_BYTES,
        slots * DESCRIPTOR_BYTES, first, len(content),
    )  # fmt: skip
    return (header + table).ljust(first, b"\0") + content


def artifact(data: bytes, kind: str = SIF_LAYER) -> BuiltImage:
    """Return what `apptainer push x.sif oras://…` brings into a registry."""
    config = b"{}"
    title = {"org.opencontainers.image.title": "x.sif"}
    body = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": descriptor(config, SIF_CONFIG),
        "layers": [descriptor(data, kind, annotations=title)],
    }
    manifest = json.dumps(body).encode()
    return BuiltImage(manifest, config, {sha256(each): each for each in (manifest, config, data)})


def write_root(
    where: Path,
    busybox: bytes,
    *,
    runscript: str = 'echo run "$@"',
    environment: str = "",
    applets: Sequence[str] = ("sh", "cat", "echo", "env", "id", "ls", "sleep", "test", "touch"),
) -> Path:
    """Write the root file system of an image as Apptainer builds it."""
    for name in ("bin", "tmp", "etc", ".singularity.d/env"):
        (where / name).mkdir(parents=True)
    (where / "tmp").chmod(0o1777)
    (where / "bin/busybox").write_bytes(busybox)
    (where / "bin/busybox").chmod(0o755)
    for name in applets:
        (where / "bin" / name).symlink_to("busybox")
    if runscript:
        script = where / ".singularity.d/runscript"
        script.write_text(f"#!/bin/sh\n{runscript}\n")
        script.chmod(0o755)
    (where / ".singularity.d/env/90-environment.sh").write_text(environment)
    return where

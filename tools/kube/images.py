"""Images that are made here, from nothing but a static busybox and files: no registry is needed."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from typing import BinaryIO

from tools import debian

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_PASSWD = "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/tmp:/bin/sh\n"


def busybox_archive(
    name: str,
    *,
    command: Sequence[str] = ("sh",),
    files: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> bytes:
    """Return an image as `docker save` writes it: busybox, all its commands, and programs."""
    config = {
        "Cmd": list(command),
        "Env": [
            "PATH=/usr/local/bin:/bin",
            *(f"{key}={value}" for key, value in (environment or {}).items()),
        ],
    }
    layer, buffer = io.BytesIO(_busybox_layer(files or {})), io.BytesIO()
    write_archive(buffer, name, layer, config)
    return buffer.getvalue()


def write_archive(
    target: BinaryIO, name: str, layer: BinaryIO, config: Mapping[str, object]
) -> None:
    """Write an image of one layer as `docker save` does."""
    digest = hashlib.file_digest(layer, "sha256").hexdigest()  # type: ignore[arg-type]
    described = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    table = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(fileobj=target, mode="w") as tar:
        entry = tarfile.TarInfo("layer.tar")
        entry.size = layer.seek(0, io.SEEK_END)
        layer.seek(0)
        tar.addfile(entry, layer)
        _add(tar, "config.json", json.dumps(described).encode())
        _add(tar, "manifest.json", json.dumps(table).encode())


def _busybox_layer(files: Mapping[str, str]) -> bytes:
    busybox = debian.static_busybox()
    done = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder in ("bin", "etc", "root", "tmp", "usr", "usr/local", "usr/local/bin"):
            _add_folder(tar, folder, 0o1777 if folder == "tmp" else 0o755)
        _add(tar, "bin/busybox", busybox.read_bytes(), 0o755)
        for applet in done.stdout.split():
            if applet != "busybox":
                _add_link(tar, f"bin/{applet}", "busybox")
        _add(tar, "etc/passwd", _PASSWD.encode())
        _add(tar, "etc/group", b"root:x:0:\nuser:x:1000:\n")
        for path, text in files.items():
            _add(tar, path.lstrip("/"), text.encode(), 0o755)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), mode
    tar.addfile(info, io.BytesIO(data))


def _add_folder(tar: tarfile.TarFile, name: str, mode: int) -> None:
    info = tarfile.TarInfo(name)
    info.type, info.mode = tarfile.DIRTYPE, mode
    tar.addfile(info)


def _add_link(tar: tarfile.TarFile, name: str, target: str) -> None:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = tarfile.SYMTYPE, target, 0o777
    tar.addfile(info)

"""What the hooks of NVIDIA's CDI specs are for, without running them.

`create-symlinks` makes links in the container. `update-ldcache` makes the libraries of the driver
known to the dynamic linker: here they get links by the names that programs ask for (their sonames)
in a directory of their own, which is in LD_LIBRARY_PATH. Other libraries of the image keep their
place, and an image needs no ldconfig. The remaining hooks are not needed: they guard against
programs that change device nodes, or choose between drivers.
"""

from __future__ import annotations

import contextlib
import posixpath
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from hekla.nodeagent.cdi import BindMount, Hook, InvalidSpec

LIBRARIES: Final = "/usr/local/nvidia/lib64"
"""Images of CUDA have this directory in LD_LIBRARY_PATH already."""
PROGRAMS: Final = ("nvidia-cdi-hook", "nvidia-ctk")
LINKS: Final = "create-symlinks"
LIBRARY_LINKS: Final = ("update-ldcache", "create-soname-symlinks")
NOT_NEEDED: Final = (
    "chmod",
    "enable-cuda-compat",
    "disable-device-node-modification",
    "update-application-profile",
)
MAX_DYNAMIC_BYTES: Final = 1 << 16
MAX_NAME_BYTES: Final = 255

_ELF_MAGIC: Final = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT: Final = struct.Struct("<IIQQQQQQ")
_ENTRY: Final = struct.Struct("<qQ")
_LOAD, _DYNAMIC = 1, 2
_STRINGS, _SONAME = 5, 14

Link = tuple[str, str]
"""Its path in the container, and its target."""


def links(hooks: Sequence[tuple[Hook, str]], mounts: Sequence[BindMount]) -> list[Link]:
    """Return the links that hooks would make; each hook with its place in a file."""
    found: list[Link] = []
    folders: set[str] = set()
    for hook, where in hooks:
        verb, options = _parsed(hook, where)
        if verb == LINKS:
            found += [_link(text, where) for text in options.get("link", ())]
        elif verb in LIBRARY_LINKS:
            folders.update(map(posixpath.normpath, options.get("folder", ())))
    for mount in mounts:
        folder, name = posixpath.split(mount.container_path)
        if posixpath.normpath(folder) in folders and ".so" in name:
            soname = read_soname(Path(mount.host_path))
            if soname:
                found.append((f"{LIBRARIES}/{soname}", mount.container_path))
    return list(dict.fromkeys(found))


def _parsed(hook: Hook, where: str) -> tuple[str, dict[str, list[str]]]:
    """Return what a hook of NVIDIA does, and its options."""
    words = list(hook.args or ())[1:]
    if words[:1] == ["hook"]:
        words.pop(0)
    verb = words.pop(0) if words else ""
    if posixpath.basename(hook.path) not in PROGRAMS:
        raise InvalidSpec(
            f"{where}: the hook {hook.path[:200]!r} is a program of the host, and hekla runs none; "
            "remove the hook from the spec"
        )
    if verb not in (LINKS, *LIBRARY_LINKS, *NOT_NEEDED):
        raise InvalidSpec(
            f"{where}: it is not known what the hook {verb[:80]!r} is for; write the spec without "
            f"it: nvidia-ctk cdi generate --disable-hook={verb[:80]}"
        )
    options: dict[str, list[str]] = {}
    while words:
        name, equals, value = words.pop(0).lstrip("-").partition("=")
        if not equals and words and not words[0].startswith("-"):
            value = words.pop(0)
        options.setdefault(name, []).append(value)
    return verb, options


def _link(text: str, where: str) -> Link:
    target, separator, path = text.partition("::")
    valid = path.startswith("/") and ".." not in path.split("/") and target
    if not separator or not valid or not text.isprintable():
        raise InvalidSpec(f"{where}: --link {text[:200]!r} is not TARGET::/PATH")
    return path, target


def read_soname(path: Path) -> str:
    """Return the name by which programs ask for a library; empty if it has none."""
    with contextlib.suppress(OSError, struct.error, ValueError), path.open("rb") as file:

        def read(offset: int, size: int) -> bytes:
            file.seek(offset)
            return file.read(min(size, MAX_DYNAMIC_BYTES))

        return _soname(read)
    return ""


def _soname(read: Callable[[int, int], bytes]) -> str:
    header = read(0, _HEADER.size)
    if not header.startswith(_ELF_MAGIC):
        return ""
    fields = _HEADER.unpack(header)
    offset, count = fields[5], min(fields[10], 64)
    segments = list(_SEGMENT.iter_unpack(read(offset, count * _SEGMENT.size)))
    entries: dict[int, int] = {}
    for kind, _, start, _, _, size, *_ in segments:
        if kind == _DYNAMIC:
            data = read(start, size)
            entries = dict(_ENTRY.iter_unpack(data[: len(data) // _ENTRY.size * _ENTRY.size]))
    if _SONAME not in entries or _STRINGS not in entries:
        return ""
    address = entries[_STRINGS] + entries[_SONAME]
    for place in _places(segments, address):
        name = read(place, MAX_NAME_BYTES + 1).partition(b"\0")[0].decode()
        if len(name) <= MAX_NAME_BYTES and "/" not in name and name.isprintable():
            return name
    return ""


def _places(segments: Sequence[tuple[int, ...]], address: int) -> Iterator[int]:
    """Yield where in the file an address of memory is."""
    for kind, _, start, begin, _, size, *_ in segments:
        if kind == _LOAD and begin <= address < begin + size:
            yield start + address - begin

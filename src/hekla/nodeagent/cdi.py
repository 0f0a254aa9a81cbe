"""Specs of the Container Device Interface (CDI): what a container of an image gets for a GPU.

`nvidia-ctk cdi generate` writes such a spec: device nodes, libraries of the driver, variables, and
hooks. Specs are *.json and *.yaml files in /etc/cdi and /var/run/cdi. A device of the later
directory is used; two of the same directory are a conflict. Edits of a spec come once, before those
of its devices.

Hooks are programs of the host that run as root on the container's files. hekla runs none of them:
it does itself what those of NVIDIA are for (`cdi_hooks`), and refuses specs with others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from hekla.nodeagent.errors import AllocationError
from hekla.units.bounded_yaml import CONFIG, YAMLError, load

DIRECTORIES: Final = (Path("/etc/cdi"), Path("/var/run/cdi"))
"""Later ones have priority."""
MAX_FILES: Final = 100
MAX_BYTES: Final = 4 << 20
SUFFIXES: Final = (".json", ".yaml")
GPU_KIND: Final = "nvidia.com/gpu"

_VERSION: Final = re.compile(r"v?(0|1)\.\d+\.\d+")
_KIND: Final = re.compile(r"[a-zA-Z0-9][-a-zA-Z0-9_.]*/[a-zA-Z0-9][-a-zA-Z0-9_.]*")
_VARIABLE: Final = re.compile(r"[^=\0]+=[^\0]*")


class InvalidSpec(AllocationError):
    """A spec cannot be used; the message names file and field."""


class DeviceNode(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    path: str
    host_path: str = ""
    """The same as `path` if empty."""
    type: str = ""
    major: int = 0
    minor: int = 0
    file_mode: int | None = None
    permissions: str = ""
    uid: int | None = None
    gid: int | None = None


class BindMount(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    host_path: str
    container_path: str
    options: list[str] | None = None
    type: str = ""


class Hook(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    hook_name: str
    path: str
    args: list[str] | None = None
    env: list[str] | None = None
    timeout: int | None = None


class Edits(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    env: list[str] | None = None
    device_nodes: list[DeviceNode] | None = None
    mounts: list[BindMount] | None = None
    hooks: list[Hook] | None = None
    net_devices: list[object] | None = None
    intel_rdt: object | None = None
    additional_gids: list[int] | None = msgspec.field(name="additionalGids", default=None)


class Device(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    name: str
    container_edits: Edits = msgspec.field(default_factory=Edits)
    annotations: dict[str, str] | None = None


class Spec(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    cdi_version: str
    kind: str
    devices: list[Device]
    container_edits: Edits = msgspec.field(default_factory=Edits)
    annotations: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Placed:
    """Edits, and where they are from."""

    edits: Edits
    where: str


@dataclass(slots=True)
class _Found:
    spec: int
    """The number of its spec."""
    priority: int
    edits: Placed
    conflict: str = ""


@dataclass
class Registry:
    """The devices of all specs."""

    devices: dict[str, _Found] = field(default_factory=dict)
    """By qualified name: `nvidia.com/gpu=0`."""
    commons: list[Placed] = field(default_factory=list)
    """Edits of each spec."""
    problems: list[str] = field(default_factory=list)
    """Files that cannot be read. They matter only if a device is not found."""

    def has_kind(self, kind: str) -> bool:
        return any(name.startswith(f"{kind}=") for name in self.devices)

    def add(self, spec: Spec, path: Path, priority: int) -> None:
        number = len(self.commons)
        self.commons.append(Placed(spec.container_edits, f"{path}: containerEdits"))
        for index, device in enumerate(spec.devices):
            name = f"{spec.kind}={device.name}"
            placed = Placed(device.container_edits, f"{path}: devices[{index}].containerEdits")
            found, known = _Found(number, priority, placed), self.devices.get(name)
            if known is not None and known.priority == priority:
                found.conflict = f"{known.edits.where.partition(':')[0]} and {path} both have it"
            self.devices[name] = found

    def edits(self, names: Sequence[str]) -> list[Placed]:
        """Return the edits for devices by their qualified names, in the order to apply them."""
        edits: list[Placed] = []
        seen: set[int] = set()
        for name in names:
            found = self.devices.get(name)
            if found is None:
                raise AllocationError(f"needs the CDI device {name}, {self._why_missing()}")
            if found.conflict:
                raise AllocationError(
                    f"needs the CDI device {name}: {found.conflict}; remove one of these files"
                )
            if found.spec not in seen:
                seen.add(found.spec)
                edits.append(self.commons[found.spec])
            edits.append(found.edits)
        return edits

    def _why_missing(self) -> str:
        if self.problems:
            return f"and {'; '.join(self.problems)[:1000]}"
        known = ", ".join(sorted(self.devices))[:500] or "none"
        return (
            f"which no spec has (they have {known}); write the spec again, for example with "
            "`nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`"
        )


class CdiSpecs:
    """The specs of this machine, read again when their files have changed."""

    def __init__(self, directories: Sequence[Path] = DIRECTORIES) -> None:
        self._directories = directories
        self._versions: list[tuple[object, ...]] = []
        self._registry = Registry()

    def registry(self) -> Registry:
        found = [
            (priority, path)
            for priority, directory in enumerate(self._directories)
            for path in _files(directory)
        ]
        versions = [_version(path) for _, path in found]
        if versions != self._versions:
            self._registry, self._versions = read(found), versions
        return self._registry


def read(files: Sequence[tuple[int, Path]]) -> Registry:
    """Read files with their priorities, lowest first."""
    registry = Registry()
    for priority, path in files[:MAX_FILES]:
        try:
            registry.add(_read(path), path, priority)
        except InvalidSpec as error:
            registry.problems.append(str(error))
    if len(files) > MAX_FILES:
        registry.problems.append(f"only the first {MAX_FILES} of {len(files)} specs are read")
    return registry


def _files(directory: Path) -> list[Path]:
    try:
        return sorted(path for path in directory.iterdir() if path.suffix in SUFFIXES)
    except OSError:
        return []


def _version(path: Path) -> tuple[object, ...]:
    try:
        found = path.stat()
    except OSError:
        return (path,)
    return path, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _read(path: Path) -> Spec:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise InvalidSpec(f"{path} is larger than {MAX_BYTES >> 20} MiB")
        spec = msgspec.convert(load(data, CONFIG), Spec)
    except (OSError, UnicodeDecodeError, ValueError, YAMLError) as error:
        raise InvalidSpec(f"{path} is not a CDI spec: {' '.join(str(error).split())}") from error
    if not _VERSION.fullmatch(spec.cdi_version):
        raise InvalidSpec(f"{path}: cdiVersion {spec.cdi_version[:40]!r} is neither 0.x nor 1.x")
    if not _KIND.fullmatch(spec.kind):
        raise InvalidSpec(f"{path}: kind {spec.kind[:80]!r} is not a vendor and a class")
    _check(spec.container_edits, f"{path}: containerEdits")
    for index, device in enumerate(spec.devices):
        _check(device.container_edits, f"{path}: devices[{index}].containerEdits")
    return spec


def _check(edits: Edits, where: str) -> None:
    """Refuse what cannot be done, and paths that are none."""
    for name, value in (
        ("netDevices", edits.net_devices),
        ("intelRdt", edits.intel_rdt),
        ("additionalGids", edits.additional_gids),
    ):
        if value:
            raise InvalidSpec(f"{where}.{name} is not supported")
    for index, variable in enumerate(edits.env or ()):
        if not _VARIABLE.fullmatch(variable):
            raise InvalidSpec(f"{where}.env[{index}] is not NAME=value")
    for index, node in enumerate(edits.device_nodes or ()):
        at = f"{where}.deviceNodes[{index}]"
        _check_path(node.path, f"{at}.path")
        _check_path(node.host_path or node.path, f"{at}.hostPath")
        if node.type not in ("", "b", "c", "u"):
            raise InvalidSpec(f"{at}.type {node.type[:10]!r} is not supported; b, c and u are")
    for index, mount in enumerate(edits.mounts or ()):
        at = f"{where}.mounts[{index}]"
        _check_path(mount.host_path, f"{at}.hostPath")
        _check_path(mount.container_path, f"{at}.containerPath")
        if mount.type not in ("", "bind", "none"):
            raise InvalidSpec(f"{at}.type {mount.type[:20]!r} is not supported; bind is")


def _check_path(path: str, where: str) -> None:
    if not path.startswith("/") or ".." in path.split("/") or not path.isprintable():
        raise InvalidSpec(f"{where} {path[:200]!r} is not an absolute path")

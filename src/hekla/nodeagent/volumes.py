"""The volumes of a pod, as directories and files in the pod's directory.

`sandbox` bind-mounts them into the container if it can; otherwise the pod uses their real paths.

Note: the agent may have more rights than the pod, and the pod may change what is in its volumes. So
paths inside volumes are resolved component by component (`container_init.paths`).
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hekla.nodeagent.container_init import linux
from hekla.nodeagent.container_init.paths import PathEscapes, descend, make_directories
from hekla.nodeagent.environment import MissingReference, Sources, field, resource_field
from hekla.units.objects import Object
from hekla.units.quantity import parse_quantity

DEFAULT_MODE = 0o644
READ_ONLY_KINDS = ("configMap", "secret", "downwardAPI", "projected")
"""Volumes that containers cannot write, as in Kubernetes: the agent writes them again."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


class VolumeError(Exception):
    """A volume cannot be created; the message says why."""


@dataclass(frozen=True, slots=True)
class VolumeOwner:
    """Who a pod's volumes belong to, in ids of the host."""

    uid: int
    gid: int
    fs_group: int | None = None
    base: int = 0
    """The first id of the pod's user namespace; 0 for the host's own."""
    range_size: int = 0


def references(pod: Object) -> tuple[set[str], set[str]]:
    """Return the names of the config maps and secrets that volumes and variables refer to."""
    maps: set[str] = set()
    secrets: set[str] = set()
    for volume in pod["spec"].get("volumes") or ():
        for source in [volume, *((volume.get("projected") or {}).get("sources") or ())]:
            if "configMap" in source:
                maps.add(source["configMap"]["name"])
            if "secret" in source:
                secrets.add(source["secret"].get("secretName") or source["secret"].get("name"))
    for container in [*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or ())]:
        for source in container.get("envFrom") or ():
            if source.get("configMapRef"):
                maps.add(source["configMapRef"]["name"])
            if source.get("secretRef"):
                secrets.add(source["secretRef"]["name"])
        for variable in container.get("env") or ():
            origin = variable.get("valueFrom") or {}
            if "configMapKeyRef" in origin:
                maps.add(origin["configMapKeyRef"]["name"])
            if "secretKeyRef" in origin:
                secrets.add(origin["secretKeyRef"]["name"])
    return maps, secrets


def decode_config_map(obj: Object | None) -> dict[str, str] | None:
    """Return the values of a config map; None for a missing one."""
    if obj is None:
        return None
    binary = {
        key: base64.b64decode(value).decode("utf-8", "surrogateescape")
        for key, value in (obj.get("binaryData") or {}).items()
    }
    return {**(obj.get("data") or {}), **binary}


def decode_secret(obj: Object | None) -> dict[str, str] | None:
    """Return the values of a secret; None for a missing one."""
    if obj is None:
        return None
    return {
        key: base64.b64decode(value).decode("utf-8", "surrogateescape")
        for key, value in (obj.get("data") or {}).items()
    }


class Volumes:
    """Creates the volumes of one pod in a directory."""

    def __init__(
        self,
        pod: Object,
        directory: Path,
        claims: Path,
        sources: Sources,
        *,
        owner: VolumeOwner | None = None,
        off_limits: Path | None = None,
    ) -> None:
        """`owner` is None if the pod runs as the user of the agent.

        No hostPath may lead into `off_limits`.
        """
        self._owner = owner
        self._off_limits = off_limits
        self._pod = pod
        self._directory = directory
        self._claims = claims
        self._sources = sources

    def make(self, *, node: Object, pod_ip: str) -> dict[str, Path]:
        """Create all volumes; return their paths by name."""
        self._node, self._pod_ip = node, pod_ip
        paths = {}
        for volume in self._pod["spec"].get("volumes") or ():
            paths[volume["name"]] = self._volume(volume)
        return paths

    def _volume(self, volume: Object) -> Path:
        name = _checked(str(volume["name"]), "volume name")
        directory = self._directory / name
        if "hostPath" in volume:
            return _host_path(name, volume["hostPath"], self._off_limits)
        if "persistentVolumeClaim" in volume:
            return self._claim(str(volume["persistentVolumeClaim"]["claimName"]))
        directory.mkdir(parents=True, exist_ok=True)
        if "emptyDir" in volume or set(volume) == {"name"}:
            if (volume.get("emptyDir") or {}).get("medium") == "Memory":
                self._mount_memory(directory, volume["emptyDir"])
            self._give_directory(directory)
            return directory
        directory.chmod(0o755)
        if "projected" in volume:
            mode = volume["projected"].get("defaultMode", DEFAULT_MODE)
            for source in volume["projected"].get("sources") or ():
                self._files(directory, source, mode)
        elif not self._files(directory, volume, DEFAULT_MODE):
            kinds = ", ".join(sorted(set(volume) - {"name"}))
            raise VolumeError(
                f"volume {name!r}: {kinds} is not available on a single machine; use emptyDir, "
                "hostPath, configMap, secret, projected, downwardAPI or a claim"
            )
        self._give_files(directory)
        return directory

    def _mount_memory(self, directory: Path, source: Object) -> None:
        """Mount memory at a volume. It counts for the container that writes it.

        Without root the volume is on disk.
        """
        if os.geteuid() != 0 or directory.is_mount():
            return
        limit = source.get("sizeLimit")
        size = f",size={parse_quantity(limit).value()}" if limit is not None else ""
        linux.mount(
            "tmpfs", str(directory), "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, f"mode=777{size}"
        )

    def _claim(self, name: str) -> Path:
        namespace = _checked(str(self._pod["metadata"]["namespace"]), "namespace")
        directory = self._claims / namespace / _checked(name, "claimName")
        directory.mkdir(parents=True, exist_ok=True)
        if self._owner is not None and self._owner.range_size:
            _shift_owners(directory, self._owner)
        self._give_directory(directory)
        return directory

    def _give_directory(self, directory: Path) -> None:
        """Let all containers of the pod write a volume."""
        owner = self._owner
        if owner is not None:
            group = owner.gid if owner.fs_group is None else owner.fs_group
            os.chown(directory, owner.uid, group, follow_symlinks=False)
        has_group = owner is not None and owner.fs_group is not None
        directory.chmod(0o2777 if has_group else 0o777)

    def _give_files(self, directory: Path) -> None:
        """Let the pod's root, and its fsGroup, read the files of a volume.

        Containers cannot change this volume, so there are no links of others in it.
        """
        owner = self._owner
        if owner is None:
            return
        group = owner.gid if owner.fs_group is None else owner.fs_group
        for path in (directory, *directory.rglob("*")):
            os.chown(path, owner.uid, group, follow_symlinks=False)
            if owner.fs_group is not None and path.is_file():
                path.chmod(path.stat().st_mode | 0o440)

    def _files(self, directory: Path, source: Object, mode: int) -> bool:
        """Write the files of one source; return False for an unknown kind."""
        for kind, key in (("ConfigMap", "configMap"), ("Secret", "secret")):
            if key in source:
                ref = source[key]
                name = ref.get("name") or ref.get("secretName")
                optional = bool(ref.get("optional"))
                values = self._sources.values(kind, name, optional=optional)
                self._write(
                    directory, values, ref, ref.get("defaultMode", mode), f"{kind} {name!r}"
                )
                return True
        if "downwardAPI" in source:
            for item in source["downwardAPI"].get("items") or ():
                _write(directory, item["path"], self._downward(item), item.get("mode", mode))
            return True
        return False

    def _write(
        self, directory: Path, values: Mapping[str, str], ref: Object, mode: int, what: str
    ) -> None:
        items = ref.get("items")
        if items is None:
            items = [{"key": key, "path": key} for key in values]
        for item in items:
            if item["key"] not in values:
                if ref.get("optional"):
                    continue
                raise MissingReference(f"{what} has no key {item['key']!r}")
            _write(directory, item["path"], values[item["key"]], item.get("mode", mode))

    def _downward(self, item: Object) -> str:
        if "fieldRef" in item:
            return field(self._pod, item["fieldRef"]["fieldPath"], pod_ip=self._pod_ip)
        container = self._pod["spec"]["containers"][0]
        return resource_field(self._pod, container, item["resourceFieldRef"], node=self._node)


def unmount_below(directory: Path) -> None:
    """Unmount the volumes in memory of a pod."""
    prefix = f"{directory}/"
    mounts = [line.split(" ")[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for target in reversed(mounts):
        if target.startswith(prefix):
            with contextlib.suppress(OSError):
                linux.unmount(target)


def _write(directory: Path, relative: str, text: str, mode: int) -> None:
    """Write a file below a volume. The API has checked the path; it is checked again."""
    parts = Path(relative).parts
    if not parts or ".." in parts or Path(relative).is_absolute():
        raise VolumeError(f"the path {relative!r} leads out of its volume")
    root = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        found, rest = descend(root, "/".join(parts[:-1]), beneath=True)
        parent = make_directories(found, rest)
    except PathEscapes as error:
        raise VolumeError(f"the path {relative!r} leads out of its volume") from error
    finally:
        os.close(root)
    try:
        _replace(parent, parts[-1], text.encode("utf-8", "surrogateescape"), mode)
    finally:
        os.close(parent)


def _replace(parent: int, name: str, data: bytes, mode: int) -> None:
    temporary = f".{name}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=parent)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(temporary, flags, 0o600, dir_fd=parent)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        os.fchmod(file.fileno(), mode)
    os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)


def _checked(name: str, what: str) -> str:
    """Return a name that is one component of a path; refuse any other."""
    if not _NAME.fullmatch(name) or ".." in name:
        raise VolumeError(f"{what} {name!r} is not a valid name")
    return name


def _shift_owners(directory: Path, owner: VolumeOwner) -> None:
    """Move the files of a claim into the range of its namespace, once."""
    if owner.base <= os.lstat(directory).st_uid < owner.base + owner.range_size:
        return
    for path in _below(directory):
        found = os.lstat(path)
        ids = [
            number if number >= owner.range_size else owner.base + number
            for number in (found.st_uid, found.st_gid)
        ]
        os.chown(path, *ids, follow_symlinks=False)


def _below(directory: Path) -> Iterator[str]:
    for where, directories, files in os.walk(directory):
        yield from (os.path.join(where, name) for name in (*directories, *files))


def _host_path(name: str, source: Object, off_limits: Path | None) -> Path:
    path, kind = Path(source["path"]), source.get("type") or ""
    if off_limits is not None and path.resolve().is_relative_to(off_limits.resolve()):
        raise VolumeError(
            f"volume {name!r}: hostPath {path} is in the data directory of the cluster; "
            "use another path"
        )
    # Modes of the kubelet, whatever the umask of this process.
    if kind == "DirectoryOrCreate" and not path.exists():
        path.mkdir(parents=True)
        path.chmod(0o755)
    elif kind == "FileOrCreate" and not path.exists():
        path.touch()
        path.chmod(0o644)
    checks = {"Directory": path.is_dir, "File": path.is_file, "Socket": path.is_socket}
    if not path.exists() or (kind in checks and not checks[kind]()):
        raise VolumeError(f"volume {name!r}: {path} does not exist or is not a {kind or 'path'}")
    return path

"""The volumes of a pod, as directories and files in the pod's directory.

`sandbox` bind-mounts them into the container if it can; otherwise the pod uses their real paths.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import Path

from hekla.nodeagent.environment import MissingReference, Sources, field, resource_field
from hekla.units.objects import Object

DEFAULT_MODE = 0o644


class VolumeError(Exception):
    """A volume cannot be created; the message says why."""


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

    def __init__(self, pod: Object, directory: Path, claims: Path, sources: Sources) -> None:
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
        name = str(volume["name"])
        directory = self._directory / name
        if "hostPath" in volume:
            return _host_path(name, volume["hostPath"])
        if "persistentVolumeClaim" in volume:
            claim = str(volume["persistentVolumeClaim"]["claimName"])
            directory = self._claims / str(self._pod["metadata"]["namespace"]) / claim
            directory.mkdir(parents=True, exist_ok=True)
            return directory
        directory.mkdir(parents=True, exist_ok=True)
        if "emptyDir" in volume or set(volume) == {"name"}:
            directory.chmod(0o777)
            return directory
        if "projected" in volume:
            mode = volume["projected"].get("defaultMode", DEFAULT_MODE)
            for source in volume["projected"].get("sources") or ():
                self._files(directory, source, mode)
            return directory
        if self._files(directory, volume, DEFAULT_MODE):
            return directory
        kinds = ", ".join(sorted(set(volume) - {"name"}))
        raise VolumeError(
            f"volume {name!r}: {kinds} is not available on a single machine; use emptyDir, "
            "hostPath, configMap, secret, projected, downwardAPI or a claim"
        )

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


def _write(directory: Path, relative: str, text: str, mode: int) -> None:
    """Write a file below a volume. The API has checked the path; it is checked again."""
    parts = Path(relative).parts
    if ".." in parts or Path(relative).is_absolute():
        raise VolumeError(f"the path {relative!r} leads out of its volume")
    path = directory / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    data = text.encode("utf-8", "surrogateescape")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        os.fchmod(file.fileno(), mode)
    temporary.replace(path)


def _host_path(name: str, source: Object) -> Path:
    path, kind = Path(source["path"]), source.get("type") or ""
    if kind == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True)
    elif kind == "FileOrCreate":
        path.touch(exist_ok=True)
    checks = {"Directory": path.is_dir, "File": path.is_file, "Socket": path.is_socket}
    if not path.exists() or (kind in checks and not checks[kind]()):
        raise VolumeError(f"volume {name!r}: {path} does not exist or is not a {kind or 'path'}")
    return path

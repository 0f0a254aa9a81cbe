"""The root file system of a container.

It is a new tmpfs that mirrors the host's root (or a root directory of the administrator) by bind
mounts. /proc, /dev and parts of /sys are the container's own. Mount paths that do not exist are
created where only the container sees them, never on the host: in the new root itself, or in an
overlay on the nearest existing directory. Where an overlay would show what is mounted over, the
directory is mirrored instead. The container of an image has the image's root instead, with nothing
of the host's (`image_root`).

Note: an overlay shows what lies under a mount. So all overlays are made before paths are hidden,
and none after it.
"""

from __future__ import annotations

import os

from . import linux
from .image_root import make_mount_point, mount_image
from .linux import MS_BIND, MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_PRIVATE, MS_REC, MS_UNBINDABLE
from .paths import descend, give, make_directories, make_file

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes longer than all else here
    from typing import Any

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}
# As containerd: what these tell or change is the machine's.
MASKED = ("acpi", "kcore", "keys", "latency_stats", "scsi", "sched_debug", "timer_list")
READ_ONLY = ("bus", "fs", "irq", "sys", "sysrq-trigger")
MASKED_IN_SYS = ("firmware", "fs/cgroup", "fs/bpf", "kernel/debug", "kernel/tracing")
OWN = ("dev", "proc", "sys")


class Root:
    """Builds the root file system in `scratch`, and enters it."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._scratch = str(spec["scratch"])
        self._path = f"{self._scratch}/root"
        self._base = str(spec["base"])
        self._owner: tuple[int, int] = tuple(spec["root_owner"])
        """uid and gid, as seen here, of the container's root."""
        self._is_foreign = bool(spec["foreign"])
        """The container has none of this process's rights on the host's files."""
        self._privileged = bool(spec["privileged"])
        self._private = list(spec["private"])
        self._devices = list(spec["devices"])
        self._overlay = str(spec["overlay_options"])
        self._image = spec["image"]
        """The layers of an image and more; None for the host's root."""
        is_mapped = spec["user_namespace"] == "given"
        self._user_namespace = int(spec["user_namespace_fd"]) if is_mapped else -1
        self._sources = [_open_source(each) for each in spec["mounts"]]
        self._mounts = list(spec["mounts"])
        self._hidden = list(spec["hidden"])
        self._read_only = bool(spec["read_only_root"])
        self._own: set[int] = set()
        """The ids of mounts that only this container sees."""
        self._layers = 0
        self._may_cover = True

    def build(self) -> None:
        linux.mount(None, "/", None, MS_REC | MS_PRIVATE)
        linux.mount("tmpfs", self._scratch, "tmpfs", MS_NOSUID, "mode=755")
        # Without this, mirroring the directory of `scratch` would mirror the mirror.
        linux.mount(None, self._scratch, None, MS_UNBINDABLE)
        os.mkdir(self._path)
        if self._image is None:
            linux.mount("tmpfs", self._path, "tmpfs", MS_NOSUID, "mode=755")
        else:
            mount_image(
                self._image,
                self._scratch,
                self._path,
                options=self._overlay,
                user_namespace=self._user_namespace,
            )
        self._root = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        self._own.add(_mount_id(self._root))
        if self._image is None:
            self._mirror(self._base, self._path, skip=(*OWN, *self._private))
            for name in self._private:
                self._make_private(name)
        else:
            self._make_directory(self._image["directory"])
            for path, target in self._image["links"]:
                self._make_link(path, target)
        self._mount_system()
        self._attach_all()

    def enter(self) -> None:
        """Make it the root of this process, and the old one unreachable."""
        os.chdir(self._path)
        # With both paths the same, the old root is mounted over the new one, and then detached.
        linux.pivot_root(".", ".")
        linux.unmount(".")
        os.chdir("/")

    def _mirror(self, source: str, target: str, skip: tuple[str, ...] = ()) -> None:
        with os.scandir(source) as entries:
            for entry in entries:
                copy = f"{target}/{entry.name}"
                if entry.name in skip and target == self._path:
                    continue
                if entry.is_symlink():
                    os.symlink(os.readlink(entry.path), copy)
                    continue
                if entry.is_dir():
                    os.mkdir(copy)
                else:
                    os.close(os.open(copy, os.O_WRONLY | os.O_CREAT, 0o644))
                try:
                    linux.mount(entry.path, copy, None, MS_BIND | MS_REC)
                except OSError:
                    if entry.is_dir():
                        raise

    def _make_directory(self, path: str) -> None:
        """Create the work directory of an image, if it does not exist."""
        found, rest = descend(self._root, path, beneath=False)
        os.close(make_directories(found, rest))

    def _make_link(self, path: str, target: str) -> None:
        """Create a symbolic link in an image, in place of another link; files stay."""
        folder, _, name = path.rpartition("/")
        found, rest = descend(self._root, folder, beneath=False)
        parent = make_directories(found, rest)
        try:
            if os.path.islink(f"{_of(parent)}/{name}"):
                os.unlink(f"{_of(parent)}/{name}")
            os.symlink(target, f"{_of(parent)}/{name}")
        except FileExistsError:
            pass
        finally:
            os.close(parent)

    def _make_private(self, name: str) -> None:
        """Create an empty top-level directory in place of the host's."""
        path = f"{self._path}/{name}"
        os.mkdir(path)
        linux.mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
        os.chown(path, *self._owner)
        self._adopt(path)

    def _mount_system(self) -> None:
        for name in OWN:
            make_mount_point(f"{self._path}/{name}")
        linux.mount("/sys", f"{self._path}/sys", None, MS_BIND | MS_REC)
        flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
        linux.mount("proc", f"{self._path}/proc", "proc", flags)
        if self._privileged:
            linux.mount("/dev", f"{self._path}/dev", None, MS_BIND | MS_REC)
            return
        linux.make_read_only(f"{self._path}/sys", recursive=True)
        for name in MASKED_IN_SYS:
            self._mask(f"{self._path}/sys/{name}")
        for name in READ_ONLY:
            path = f"{self._path}/proc/{name}"
            if os.path.exists(path):
                linux.mount(path, path, None, MS_BIND | MS_REC)
                linux.make_read_only(path, recursive=True)
        for name in MASKED:
            self._mask(f"{self._path}/proc/{name}")
        self._make_devices()

    def _mask(self, path: str) -> None:
        if os.path.isdir(path):
            linux.mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV | linux.MS_RDONLY, "mode=555")
        elif os.path.exists(path):
            linux.mount("/dev/null", path, None, MS_BIND)

    def _make_devices(self) -> None:
        path = f"{self._path}/dev"
        linux.mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755,size=1m")
        self._adopt(path)
        for name in (*DEVICES, *self._devices):
            if not os.path.exists(f"/dev/{name}"):
                continue
            copy = f"{path}/{name}"
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            os.close(os.open(copy, os.O_WRONLY | os.O_CREAT, 0o644))
            linux.mount(f"/dev/{name}", copy, None, MS_BIND)
        for name, target in DEVICE_LINKS.items():
            os.symlink(target, f"{path}/{name}")
        os.mkdir(f"{path}/pts")
        options = "newinstance,ptmxmode=0666,mode=0620"
        linux.mount("devpts", f"{path}/pts", "devpts", MS_NOSUID | MS_NOEXEC, options)
        os.mkdir(f"{path}/shm")
        shared = MS_NOSUID | MS_NODEV | MS_NOEXEC
        linux.mount("tmpfs", f"{path}/shm", "tmpfs", shared, "mode=1777")

    # Volumes

    def _attach_all(self) -> None:
        for mount, source in zip(self._mounts, self._sources, strict=True):
            self._place(mount["target"], source)
        for path in self._hidden:
            self._hide(path)
        self._may_cover = False
        for mount, source in zip(self._mounts, self._sources, strict=True):
            self._place(mount["target"], source)
        if self._read_only:
            self._make_root_read_only()
        order = sorted(range(len(self._mounts)), key=lambda i: _depth(self._mounts[i]["target"]))
        for index in order:
            self._attach(self._mounts[index], self._sources[index])

    def _make_root_read_only(self) -> None:
        for name in os.listdir(self._path):
            path = f"{self._path}/{name}"
            if name not in OWN and os.path.ismount(path) and not os.path.islink(path):
                linux.make_read_only(path, recursive=True)
        linux.make_read_only(self._path, recursive=False)

    def _attach(self, mount: dict[str, Any], source: int) -> None:
        target = self._place(mount["target"], source)
        path = _of(target)
        linux.mount(_of(source), path, None, MS_BIND | MS_REC)
        os.close(target)
        target, _ = descend(self._root, mount["target"], beneath=False)
        if mount["read_only"]:
            linux.make_read_only(_of(target), recursive=True)
        self._own.add(_mount_id(target))
        os.close(target)

    def _place(self, path: str, source: int) -> int:
        """Open a mount path, and create it if it does not exist."""
        if self._may_cover:
            self._open_up(path)
        found, rest = descend(self._root, path, beneath=False)
        if not rest:
            return found
        if _mount_id(found) not in self._own:
            if not self._may_cover:
                raise OSError(f"mount path {path!r} leads through a link to a path of the host")
            self._cover(found)
            found, rest = descend(self._root, path, beneath=False)
        if _is_directory(source):
            return make_directories(found, rest)
        found = make_directories(found, rest[:-1])
        make_file(found, rest[-1])
        return os.open(rest[-1], os.O_PATH | os.O_NOFOLLOW, dir_fd=found)

    def _open_up(self, path: str) -> None:
        """Replace directories that the container may not pass by empty ones."""
        parts = [part for part in path.split("/") if part]
        for length in range(1, len(parts)):
            found, rest = descend(self._root, "/".join(parts[:length]), beneath=False)
            if not rest and self._is_closed(found) and _mount_id(found) not in self._own:
                linux.mount("tmpfs", _of(found), "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
                os.close(found)
                found, _ = descend(self._root, "/".join(parts[:length]), beneath=False)
                self._own.add(_mount_id(found))
                os.chown(_of(found), *self._owner)
            os.close(found)
            if rest:
                return

    def _is_closed(self, directory: int) -> bool:
        """Return whether the container may not pass a directory, such as /root of a real root."""
        if self._is_foreign:
            return not os.fstat(directory).st_mode & 0o001
        return not os.access(_of(directory), os.X_OK)

    def _hide(self, path: str) -> None:
        found, rest = descend(self._root, path, beneath=False)
        if not rest and _mount_id(found) not in self._own:
            linux.mount("tmpfs", _of(found), "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
            os.close(found)
            found, _ = descend(self._root, path, beneath=False)
            self._own.add(_mount_id(found))
        os.close(found)

    def _cover(self, found: int) -> None:
        """Mount a copy of a directory over it that only the container sees.

        Root of a container without rights on the host's files owns the copy: sshd trusts no keys
        in a home directory of somebody else.
        """
        where, before = os.readlink(_of(found)), os.fstat(found)
        owner = self._owner if self._is_foreign else (before.st_uid, before.st_gid)
        self._layers += 1
        upper, work = f"upper{self._layers}", f"work{self._layers}"
        for name in (upper, work):
            os.mkdir(f"{self._scratch}/{name}")
        _copy_attributes(f"{self._scratch}/{upper}", before.st_mode, owner)
        options = f"{self._overlay}lowerdir={_of(found)},upperdir={upper},workdir={work}"
        os.chdir(self._scratch)  # relative paths need no escapes
        try:
            if _has_mounts_below(where):
                raise OSError
            linux.mount("overlay", _of(found), "overlay", 0, options)
        except OSError:
            linux.mount("tmpfs", _of(found), "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
            self._mirror(_of(found), where)
            _copy_attributes(where, before.st_mode, owner)
        os.close(found)
        self._adopt(where)

    def _adopt(self, path: str) -> None:
        descriptor = os.open(path, os.O_PATH)
        self._own.add(_mount_id(descriptor))
        os.close(descriptor)


def _copy_attributes(path: str, mode: int, owner: tuple[int, int]) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.chmod(descriptor, mode & 0o7777)
    give(descriptor, *owner)
    os.close(descriptor)


def _open_source(mount: dict[str, Any]) -> int:
    """Open what is mounted; a missing sub path is created, as by the kubelet."""
    source = os.open(mount["source"], os.O_PATH | os.O_CLOEXEC)
    if not mount["sub_path"]:
        return source
    found, rest = descend(source, mount["sub_path"], beneath=True)
    os.close(source)
    return make_directories(found, rest) if rest else found


def _depth(path: str) -> int:
    return len([part for part in path.split("/") if part])


def _of(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"


def _is_directory(descriptor: int) -> bool:
    return os.fstat(descriptor).st_mode & 0o170000 == 0o040000


def _mount_id(descriptor: int) -> int:
    with open(f"/proc/self/fdinfo/{descriptor}") as file:
        for line in file:
            if line.startswith("mnt_id:"):
                return int(line[7:])
    raise OSError(f"no mount id of descriptor {descriptor}")


def _has_mounts_below(path: str) -> bool:
    prefix = path.replace("\\", "\\134").replace(" ", "\\040").rstrip("/") + "/"
    with open("/proc/self/mountinfo") as file:
        return any(line.split(" ")[4].startswith(prefix) for line in file)

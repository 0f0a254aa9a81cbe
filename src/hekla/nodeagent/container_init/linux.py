"""System calls that Python lacks."""

from __future__ import annotations

import ctypes
import os

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_UNBINDABLE, MS_PRIVATE = 32, 4096, 16384, 1 << 17, 1 << 18
MNT_DETACH = 2

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = (
    1,
    4,
    22,
    24,
    38,
)
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
SECCOMP_MODE_FILTER = 2
NS_GET_USERNS = 0xB701
LAST_CAPABILITY = 40

_AT_RECURSIVE, _AT_EMPTY_PATH, _MOUNT_ATTR_RDONLY = 0x8000, 0x1000, 1
_MOUNT_ATTR_IDMAP, _OPEN_TREE_CLONE, _MOVE_MOUNT_F_EMPTY_PATH = 0x100000, 1, 4
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_PIVOT_ROOT = 41 if os.uname().machine == "aarch64" else 155
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _bytes(path: str | None) -> bytes | None:
    return None if path is None else os.fsencode(path)


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    result = _libc.mount(
        _bytes(source), _bytes(target), _bytes(kind), ctypes.c_ulong(flags), _bytes(data or None)
    )
    _check(result, f"mount {kind or source} on {target}")


def unmount(target: str) -> None:
    _check(_libc.umount2(_bytes(target), MNT_DETACH), f"umount {target}")


def make_read_only(target: str, *, recursive: bool) -> None:
    """Make a mount read-only, and with `recursive` all mounts below it."""
    attributes = (ctypes.c_uint64 * 4)(_MOUNT_ATTR_RDONLY, 0, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    result = _libc.syscall(
        _MOUNT_SETATTR, -100, _bytes(target), flags, attributes, ctypes.sizeof(attributes)
    )
    if result == 0:
        return
    # Before Linux 5.12. A remount has to repeat the flags that are set.
    kept = os.statvfs(target).f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC | 1024 | 2048 | (1 << 21))
    mount(None, target, None, MS_REMOUNT | MS_BIND | MS_RDONLY | kept)


def mount_with_ids(source: str, target: str, user_namespace: int) -> None:
    """Mount a directory read-only, with owners as a user namespace maps them."""
    tree = _libc.syscall(_OPEN_TREE, -100, _bytes(source), _OPEN_TREE_CLONE | os.O_CLOEXEC)
    _check(min(tree, 0), f"open_tree {source}")
    try:
        attributes = (ctypes.c_uint64 * 4)(
            _MOUNT_ATTR_IDMAP | _MOUNT_ATTR_RDONLY, 0, 0, user_namespace
        )
        size = ctypes.sizeof(attributes)
        result = _libc.syscall(_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH, attributes, size)
        _check(result, f"mount {source} with the ids of a user namespace")
        result = _libc.syscall(
            _MOVE_MOUNT, tree, b"", -100, _bytes(target), _MOVE_MOUNT_F_EMPTY_PATH
        )
        _check(result, f"move_mount {target}")
    finally:
        os.close(tree)


def pivot_root(new: str, old: str) -> None:
    _check(_libc.syscall(_PIVOT_ROOT, _bytes(new), _bytes(old)), f"pivot_root {new}")


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "unshare")


def setns(descriptor: int, kind: int) -> None:
    _check(_libc.setns(descriptor, kind), "setns")


def set_hostname(name: str) -> None:
    data = name.encode()
    _check(_libc.sethostname(data, len(data)), "sethostname")


def prctl(option: int, *values: int) -> None:
    words = [ctypes.c_ulong(value) for value in (*values, 0, 0, 0, 0)[:4]]
    _check(_libc.prctl(option, *words), f"prctl {option}")


def set_capabilities(mask: int) -> None:
    """Set the permitted and effective capabilities; none are inheritable."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    low, high = mask & 0xFFFFFFFF, mask >> 32
    data = (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)
    _check(_libc.capset(header, data), "capset")


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def install_seccomp(code: bytes) -> None:
    """Install a BPF program as seccomp filter of this process and its children."""
    program = _FilterProgram(len(code) // 8, code)
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(program))

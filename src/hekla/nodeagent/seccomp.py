"""The seccomp filter of containers: what containerd's RuntimeDefault denies, as a BPF program.

It denies system calls that change the machine, that reach past namespaces, or that have a record of
kernel bugs and that no batch job needs. Everything else is allowed.
"""

from __future__ import annotations

import platform
import struct
from functools import cache

_ERRNO, _ALLOW = 0x00050000, 0x7FFF0000
_EPERM, _ENOSYS = 1, 38
_LOAD, _JUMP_EQUAL, _JUMP_ABOVE_OR_EQUAL, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_X32_BIT = 0x40000000
NEW_NAMESPACES = 0x7E020000
"""CLONE_NEW*: mount, cgroup, UTS, IPC, user, PID and network."""
AF_VSOCK = 40

_COMMON = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "pidfd_getfd": 438, "mount_setattr": 442, "quotactl_fd": 443, "open_tree_attr": 467,
}  # fmt: skip
DENIED: dict[str, dict[str, int]] = {
    "x86_64": {
        "uselib": 134, "ustat": 136, "vhangup": 153, "pivot_root": 155, "_sysctl": 156,
        "acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167,
        "swapoff": 168, "reboot": 169, "sethostname": 170, "setdomainname": 171, "iopl": 172,
        "ioperm": 173, "create_module": 174, "init_module": 175, "delete_module": 176,
        "get_kernel_syms": 177, "query_module": 178, "quotactl": 179, "nfsservctl": 180,
        "lookup_dcookie": 212, "clock_settime": 227, "vserver": 236, "kexec_load": 246,
        "add_key": 248, "request_key": 249, "keyctl": 250, "unshare": 272,
        "perf_event_open": 298, "fanotify_init": 300, "open_by_handle_at": 304, "setns": 308,
        "finit_module": 313, "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323,
        "syslog": 103, **_COMMON,
    },
    "aarch64": {
        "lookup_dcookie": 18, "umount2": 39, "mount": 40, "pivot_root": 41, "nfsservctl": 42,
        "vhangup": 58, "quotactl": 60, "acct": 89, "unshare": 97, "kexec_load": 104,
        "init_module": 105, "delete_module": 106, "clock_settime": 112, "syslog": 116,
        "reboot": 142, "sethostname": 161, "setdomainname": 162, "settimeofday": 170,
        "add_key": 217, "request_key": 218, "keyctl": 219, "swapon": 224, "swapoff": 225,
        "perf_event_open": 241, "fanotify_init": 262, "open_by_handle_at": 265, "setns": 268,
        "finit_module": 273, "bpf": 280, "userfaultfd": 282, "kexec_file_load": 294, **_COMMON,
    },
}  # fmt: skip
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CLONE = {"x86_64": 56, "aarch64": 220}
_SOCKET = {"x86_64": 41, "aarch64": 198}
_CLONE3 = 435


@cache
def runtime_default(machine: str = platform.machine()) -> bytes:
    """Return the filter for a machine; empty for one that it does not know."""
    if machine not in DENIED:
        return b""
    refuse, missing = _return(_ERRNO | _EPERM), _return(_ERRNO | _ENOSYS)
    program = [
        _statement(_LOAD, _ARCHITECTURE),
        # Calls of another architecture (i386 on x86_64) have other numbers.
        _jump(_JUMP_EQUAL, _ARCHITECTURES[machine], 1, 0),
        refuse,
        _statement(_LOAD, _NUMBER),
        _jump(_JUMP_ABOVE_OR_EQUAL, _X32_BIT, 0, 1),
        refuse,
        # Its flags are in memory, where a filter cannot look; C libraries fall back to clone.
        _jump(_JUMP_EQUAL, _CLONE3, 0, 1),
        missing,
    ]
    for number in sorted(DENIED[machine].values()):
        program += [_jump(_JUMP_EQUAL, number, 0, 1), refuse]
    program += [
        _jump(_JUMP_EQUAL, _CLONE[machine], 0, 4),
        _statement(_LOAD, _FIRST_ARGUMENT),
        _jump(_JUMP_ANY_BIT, NEW_NAMESPACES, 0, 1),
        refuse,
        _return(_ALLOW),
        _jump(_JUMP_EQUAL, _SOCKET[machine], 0, 3),
        _statement(_LOAD, _FIRST_ARGUMENT),
        _jump(_JUMP_EQUAL, AF_VSOCK, 0, 1),
        refuse,
        _return(_ALLOW),
    ]
    return b"".join(program)


def _statement(code: int, value: int) -> bytes:
    return struct.pack("=HBBI", code, 0, 0, value)


def _jump(code: int, value: int, if_true: int, if_false: int) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _return(value: int) -> bytes:
    return _statement(_RETURN, value)

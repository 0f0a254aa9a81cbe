"""User, groups, capabilities and system calls of a container."""

from __future__ import annotations

import os

from . import linux

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes longer than all else here
    from typing import Any


def enter_user_namespace(spec: dict[str, Any]) -> None:
    """Leave the host's user namespace, if the container is to have its own."""
    kind = spec["user_namespace"]
    if kind == "given":
        linux.setns(spec["user_namespace_fd"], linux.CLONE_NEWUSER)
        os.close(spec["user_namespace_fd"])
    elif kind == "self":
        # The set-up ran as root of a user namespace; the container is its own user in a second.
        linux.unshare(linux.CLONE_NEWUSER)
        uid, gid = spec["self"]
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} 0 1"),
            ("gid_map", f"{gid} 0 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)


def drop(spec: dict[str, Any]) -> None:
    """Become the container's user with its capabilities and its seccomp filter."""
    if spec["no_new_privileges"]:
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    if spec["groups"] is not None:
        os.setgroups(spec["groups"])
    if spec["capabilities"] is not None:
        for number in range(linux.LAST_CAPABILITY + 1):
            if not spec["capabilities"] >> number & 1:
                _drop_from_bounding_set(number)
    if spec["seccomp"]:
        # Before the capabilities go: without no_new_privs it takes CAP_SYS_ADMIN.
        linux.install_seccomp(spec["seccomp"])
    if spec["gid"] is not None:
        os.setresgid(spec["gid"], spec["gid"], spec["gid"])
    if spec["uid"] is not None:
        os.setresuid(spec["uid"], spec["uid"], spec["uid"])
    if spec["capabilities"] is not None:
        linux.prctl(linux.PR_CAP_AMBIENT, linux.PR_CAP_AMBIENT_CLEAR_ALL)
        if os.getuid() == 0:
            linux.set_capabilities(spec["capabilities"])
        else:
            linux.set_capabilities(0)
    # Set last: a change of the user clears it.
    linux.prctl(linux.PR_SET_PDEATHSIG, 9)


def _drop_from_bounding_set(number: int) -> None:
    try:
        linux.prctl(linux.PR_CAPBSET_DROP, number)
    except OSError as error:
        if error.errno != 22:  # EINVAL: a capability that this kernel does not know
            raise

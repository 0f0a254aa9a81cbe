"""What this machine cannot keep apart between the pods of several users. Pure.

`hekla status` prints the gaps; a cluster for several users is refused while one is there.
"""

from __future__ import annotations

from dataclasses import dataclass

from hekla.nodeagent.security_context import PodUser


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that pods can do to each other or to the machine."""

    what: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what} ({self.reason}); {self.remedy}"


@dataclass(frozen=True, slots=True)
class Machine:
    """What separates the pods of a node."""

    pod_user: PodUser
    user_reason: str
    """Why pods cannot run as users of their namespace; empty if they could."""
    namespaces: bool
    namespaces_reason: str
    cgroups: int
    """The version; 0 if they cannot be written."""
    seccomp: bool
    pod_network: bool
    network_reason: str


def boundary_gaps(machine: Machine) -> tuple[Gap, ...]:
    """Return what is not kept apart, the gravest first."""
    found = []
    if machine.pod_user == "owner":
        found.append(
            Gap(
                "all pods are one user of this machine: they read and change each other's files",
                machine.user_reason or "--pod-user owner",
                "run `hekla up` as root with --pod-user namespace",
            )
        )
    if not machine.namespaces:
        found.append(
            Gap(
                "pods see the processes and all files of this user, the cluster's keys too",
                machine.namespaces_reason,
                "allow user namespaces, or run `hekla up` as root",
            )
        )
    if not machine.cgroups:
        found.append(
            Gap(
                "one pod can take all memory, CPU time and process ids",
                "cgroups cannot be written",
                "run `hekla up` as root, or in a cgroup that is delegated to its user",
            )
        )
    if not machine.seccomp:
        found.append(
            Gap(
                "pods can use every system call",
                "there is no seccomp filter for this processor",
                "use x86_64 or aarch64",
            )
        )
    if not machine.pod_network:
        found.append(
            Gap(
                "pods share the network of this machine: they reach services on its loopback "
                "address and can take each other's ports",
                machine.network_reason or "--pod-network host",
                "run `hekla up` as root with --pod-network bridge",
            )
        )
    return tuple(found)

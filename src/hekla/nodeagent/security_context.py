"""What a container may do, from its securityContext and the abilities of this node. Pure.

A field is honoured or the pod is refused with the field named; none is ignored. Fields that can
never work here raise `SecurityContextRefused`; a container that contradicts its own `runAsNonRoot`
raises `RunsAsRoot`, which the kubelet reports as CreateContainerConfigError.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from hekla.units.objects import Object

PodUser = Literal["namespace", "owner"]
"""Who a pod runs as: a range of user ids of its namespace, or the user of the agent."""

RANGE_SIZE = 65_536
REASON = "SecurityContextNotSupported"

CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID",
    "SETPCAP", "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW",
    "IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT",
    "SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD",
    "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG",
    "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF", "CHECKPOINT_RESTORE",
)  # fmt: skip
"""By number."""
DEFAULT_CAPABILITIES = frozenset({
    "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
    "NET_BIND_SERVICE", "NET_RAW", "SYS_CHROOT", "AUDIT_WRITE", "SETFCAP",
})  # fmt: skip
"""containerd's, without MKNOD, which needs a device cgroup to be harmless."""
USER_NAMESPACE_CAPABILITIES = (DEFAULT_CAPABILITIES | {"MKNOD", "SYS_PTRACE"}) - {"NET_RAW"}
"""Those that may be added in a user namespace. Others would hold over nothing there."""
SAFE_SYSCTLS = frozenset({
    "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem",
})  # fmt: skip
"""Kubernetes' list of sysctls that stay inside the pod."""
_APPARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"


@dataclass(frozen=True, slots=True)
class Abilities:
    """What this node can give a container."""

    pod_user: PodUser
    is_root: bool
    """Whether the agent may change users."""
    namespaces: bool
    pod_network: bool
    """Whether pods have their own network."""
    uid: int
    gid: int
    """Of the agent."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The rights of a container. User ids are those inside its user namespace, if it has one."""

    uid: int
    gid: int
    groups: tuple[int, ...] | None
    """None to keep the agent's."""
    capabilities: frozenset[str] | None
    """None to keep the agent's: the container is privileged."""
    no_new_privileges: bool
    seccomp: bool
    read_only_root: bool
    privileged: bool

    @property
    def capability_mask(self) -> int | None:
        if self.capabilities is None:
            return None
        return sum(1 << CAPABILITIES.index(name) for name in self.capabilities)


class SecurityContextRefused(Exception):
    """A field cannot be honoured on this node."""

    def __init__(self, field: str, fact: str, remedy: str) -> None:
        super().__init__(f"{field}: {fact}; {remedy}")
        self.field = field


class RunsAsRoot(Exception):
    """A container has runAsNonRoot and would run as root."""


def pod_credentials(pod: Object, abilities: Abilities) -> dict[str, Credentials]:
    """Return the credentials of all containers; SecurityContextRefused for what cannot be."""
    _check_pod(pod, abilities)
    return {
        container["name"]: credentials(pod, container, abilities, where=where)
        for where, container in containers(pod)
    }


def containers(pod: Object) -> Iterator[tuple[str, Object]]:
    """Yield all containers with their field paths."""
    for key in ("initContainers", "containers"):
        for index, container in enumerate(pod["spec"].get(key) or ()):
            yield f"spec.{key}[{index}]", container


def credentials(
    pod: Object, container: Object, abilities: Abilities, *, where: str = "container"
) -> Credentials:
    """Return the credentials of one container."""
    outer = pod["spec"].get("securityContext") or {}
    inner = container.get("securityContext") or {}
    base = f"{where}.securityContext"
    _check_common(inner, base, abilities)
    uid = _first("runAsUser", inner, outer)
    gid = _first("runAsGroup", inner, outer)
    _check_id(f"{base}.runAsUser", uid, abilities.uid, abilities)
    _check_id(f"{base}.runAsGroup", gid, abilities.gid, abilities)
    privileged = bool(inner.get("privileged"))
    if privileged and (abilities.pod_user == "namespace" or not abilities.is_root):
        raise SecurityContextRefused(
            f"{base}.privileged",
            "a pod is never root on this machine",
            "omit it, or let an administrator start `hekla up` as root with --pod-user owner",
        )
    escalates = inner.get("allowPrivilegeEscalation") is True or privileged
    return Credentials(
        uid=_default_uid(abilities) if uid is None else uid,
        gid=_default_gid(abilities) if gid is None else gid,
        groups=_groups(outer, abilities),
        capabilities=None if privileged else _capabilities(inner, base, abilities),
        no_new_privileges=not escalates,
        seccomp=not privileged and _seccomp(inner, outer, base),
        read_only_root=_read_only_root(inner, base, abilities),
        privileged=privileged,
    )


def check_non_root(pod: Object, container: Object, given: Credentials) -> None:
    """Raise RunsAsRoot as the kubelet does."""
    outer = pod["spec"].get("securityContext") or {}
    inner = container.get("securityContext") or {}
    if not _first("runAsNonRoot", inner, outer) or given.uid != 0:
        return
    if _first("runAsUser", inner, outer) == 0:
        raise RunsAsRoot("container's runAsUser breaks non-root policy; set runAsUser to non-zero")
    raise RunsAsRoot(
        f"container has runAsNonRoot and image will run as root; set runAsUser (pod: "
        f'"{pod["metadata"]["name"]}_{pod["metadata"]["namespace"]}", '
        f"container: {container['name']})"
    )


def pod_sysctls(pod: Object) -> dict[str, str]:
    """Return the sysctls that a pod sets."""
    given = (pod["spec"].get("securityContext") or {}).get("sysctls") or ()
    return {each["name"]: str(each["value"]) for each in given}


def fs_group(pod: Object) -> int | None:
    """Return the group that owns the pod's volumes."""
    value = (pod["spec"].get("securityContext") or {}).get("fsGroup")
    return None if value is None else int(value)


def _check_pod(pod: Object, abilities: Abilities) -> None:
    spec = pod["spec"]
    context = spec.get("securityContext") or {}
    _check_common(context, "spec.securityContext", abilities)
    for field in ("hostPID", "hostIPC", "shareProcessNamespace"):
        if spec.get(field) and abilities.namespaces:
            raise SecurityContextRefused(
                f"spec.{field}", "every container has its own process namespace here", "omit it"
            )
    users = spec.get("hostUsers")
    if users is True and abilities.pod_user == "namespace":
        raise SecurityContextRefused(
            "spec.hostUsers", "pods of this node run in user namespaces", "omit it"
        )
    if users is False and abilities.pod_user == "owner":
        raise SecurityContextRefused(
            "spec.hostUsers",
            "pods of this node run as the user of the agent",
            "omit it, or start `hekla up` as root with --pod-user namespace",
        )
    for name, value in (pod["metadata"].get("annotations") or {}).items():
        if name.startswith(_APPARMOR_ANNOTATION) and value != "unconfined":
            raise SecurityContextRefused(
                f"metadata.annotations[{name}]", "AppArmor profiles are not applied here", "omit it"
            )
    for index, sysctl in enumerate(context.get("sysctls") or ()):
        _check_sysctl(
            f"spec.securityContext.sysctls[{index}]", str(sysctl["name"]), spec, abilities
        )
    for field in ("fsGroup", "runAsGroup"):
        _check_id(f"spec.securityContext.{field}", context.get(field), abilities.gid, abilities)
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        field = f"spec.securityContext.supplementalGroups[{index}]"
        _check_id(field, group, abilities.gid, abilities)


def _check_sysctl(field: str, name: str, spec: Object, abilities: Abilities) -> None:
    has_own = abilities.pod_network and not spec.get("hostNetwork") and abilities.is_root
    if name not in SAFE_SYSCTLS:
        raise SecurityContextRefused(field, f"{name} is not a sysctl of the pod alone", "omit it")
    if not (has_own if name.startswith("net.") else abilities.is_root and abilities.namespaces):
        raise SecurityContextRefused(
            field, f"{name} would change the machine: the pod has no network of its own", "omit it"
        )


def _check_common(context: Object, base: str, abilities: Abilities) -> None:
    """Check the fields that pods and containers share."""
    for field in ("seLinuxOptions", "windowsOptions"):
        if context.get(field):
            raise SecurityContextRefused(f"{base}.{field}", "it cannot be applied here", "omit it")
    apparmor = (context.get("appArmorProfile") or {}).get("type") or "Unconfined"
    if apparmor != "Unconfined":
        raise SecurityContextRefused(
            f"{base}.appArmorProfile", "AppArmor profiles are not applied here", "omit it"
        )
    if (context.get("procMount") or "Default") != "Default":
        raise SecurityContextRefused(
            f"{base}.procMount", "/proc is always masked here", "omit it or use Default"
        )
    if (context.get("seccompProfile") or {}).get("type") == "Localhost":
        raise SecurityContextRefused(
            f"{base}.seccompProfile.type",
            "this node has no profile files",
            "use RuntimeDefault",
        )


def _check_id(field: str, value: int | None, own: int, abilities: Abilities) -> None:
    if value is None:
        return
    if abilities.pod_user == "namespace":
        if not 0 <= value < RANGE_SIZE:
            raise SecurityContextRefused(
                field, f"{value} is outside the {RANGE_SIZE} ids of a namespace", "use a smaller id"
            )
    elif not abilities.is_root and value != own:
        raise SecurityContextRefused(
            field,
            f"{value} is not the id {own} that all pods of this node run as",
            "omit it, or start `hekla up` as root",
        )


def _default_uid(abilities: Abilities) -> int:
    return 0 if abilities.pod_user == "namespace" else abilities.uid


def _default_gid(abilities: Abilities) -> int:
    return 0 if abilities.pod_user == "namespace" else abilities.gid


def _groups(context: Object, abilities: Abilities) -> tuple[int, ...] | None:
    given = [*(context.get("supplementalGroups") or ())]
    if context.get("fsGroup") is not None:
        given.append(context["fsGroup"])
    if not abilities.is_root or (abilities.pod_user == "owner" and not given):
        return None
    return tuple(dict.fromkeys(int(group) for group in given))


def _capabilities(context: Object, base: str, abilities: Abilities) -> frozenset[str]:
    given = context.get("capabilities") or {}
    added = _names(given.get("add") or (), f"{base}.capabilities.add")
    dropped = _names(given.get("drop") or (), f"{base}.capabilities.drop")
    for index, name in enumerate(given.get("add") or ()):
        field, plain = f"{base}.capabilities.add[{index}]", _plain(name)
        if not abilities.is_root:
            raise SecurityContextRefused(
                field, "pods of this node run as an unprivileged user", "omit it"
            )
        if abilities.pod_user == "namespace" and plain not in USER_NAMESPACE_CAPABILITIES:
            raise SecurityContextRefused(
                field, f"{name} has no effect in a user namespace of this node", "omit it"
            )
    if "ALL" in added:
        return frozenset(CAPABILITIES) - dropped
    kept = frozenset() if "ALL" in dropped else DEFAULT_CAPABILITIES - dropped
    return kept | added


def _names(given: Mapping[str, object] | list[str] | tuple[str, ...], field: str) -> frozenset[str]:
    names = frozenset(_plain(str(name)) for name in given)
    for name in sorted(names):
        if name != "ALL" and name not in CAPABILITIES:
            raise SecurityContextRefused(field, f"{name} is not a capability", "correct the name")
    return names


def _plain(name: str) -> str:
    return name.upper().removeprefix("CAP_")


def _seccomp(inner: Object, outer: Object, base: str) -> bool:
    profile = inner.get("seccompProfile") or outer.get("seccompProfile") or {}
    kind = profile.get("type") or "RuntimeDefault"
    if kind not in ("RuntimeDefault", "Unconfined"):
        raise SecurityContextRefused(
            f"{base}.seccompProfile.type", f"{kind} is not available here", "use RuntimeDefault"
        )
    return bool(kind == "RuntimeDefault")


def _read_only_root(context: Object, base: str, abilities: Abilities) -> bool:
    wanted = bool(context.get("readOnlyRootFilesystem"))
    if wanted and not abilities.namespaces:
        raise SecurityContextRefused(
            f"{base}.readOnlyRootFilesystem",
            "this machine has no mount namespaces for pods",
            "omit it",
        )
    return wanted


def _first(name: str, *contexts: Object) -> int | None:
    for context in contexts:
        value = context.get(name)
        if value is not None:
            return int(value)
    return None

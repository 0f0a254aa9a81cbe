"""Each check of the Pod Security Standards, with the reasons and details of Kubernetes.

A check takes a pod or a pod template and returns a reason with a detail, or None if it passes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from hekla.units.objects import Object

Violation = tuple[str, str]

_CAPABILITIES = frozenset(
    {
        "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD",
        "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
    }
)  # fmt: skip
_SE_LINUX_TYPES = frozenset(
    {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
)
_SYSCTLS = frozenset(
    {
        "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem",
    }
)  # fmt: skip
_VOLUMES = (
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim",
    "projected", "secret",
)  # fmt: skip
_RESTRICTED_VOLUMES = (
    "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "gitRepo", "nfs", "iscsi",
    "glusterfs", "rbd", "flexVolume", "cinder", "cephfs", "flocker", "fc", "azureFile",
    "vsphereVolume", "quobyte", "azureDisk", "photonPersistentDisk", "portworxVolume", "scaleIO",
    "storageos",
)  # fmt: skip
_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_PROFILES = ("RuntimeDefault", "Localhost")


class Pod:
    """A pod or template, with its containers of all kinds in Kubernetes' order."""

    def __init__(self, metadata: Object, spec: Object) -> None:
        self.annotations: dict[str, str] = metadata.get("annotations") or {}
        self.spec = spec
        self.context: Object = spec.get("securityContext") or {}
        kinds = ("initContainers", "containers", "ephemeralContainers")
        self.containers: list[Object] = [c for kind in kinds for c in spec.get(kind) or ()]
        self.contexts: list[tuple[str, Object]] = [
            (str(c.get("name", "")), c.get("securityContext") or {}) for c in self.containers
        ]

    @property
    def has_own_users(self) -> bool:
        """Whether the pod runs in a user namespace, where root is not the host's."""
        return self.spec.get("hostUsers") is False

    @property
    def is_windows(self) -> bool:
        return (self.spec.get("os") or {}).get("name") == "windows"


# Fields of a pod and of a container that the checks of `baseline` read.
_POD_FIELDS = ("securityContext", "hostNetwork", "hostPID", "hostIPC")
_CONTAINER_FIELDS = (
    "securityContext", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle",
)  # fmt: skip


def is_plain(metadata: Object, spec: Object) -> bool:
    """Return whether a pod sets no field that `baseline` restricts: most pods, found quickly."""
    if metadata.get("annotations") and any(
        k.startswith(_APP_ARMOR) for k in metadata["annotations"]
    ):
        return False
    for field in _POD_FIELDS:
        if spec.get(field):
            return False
    for volume in spec.get("volumes") or ():
        if "hostPath" in volume:
            return False
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for container in spec.get(kind) or ():
            for field in _CONTAINER_FIELDS:
                if container.get(field):
                    return False
            for port in container.get("ports") or ():
                if port.get("hostPort"):
                    return False
    return True


def _quoted(items: Iterable[str]) -> str:
    return ", ".join(f'"{item}"' for item in items)


def _count(items: Collection[str], one: str, many: str = "") -> str:
    return one if len(items) == 1 else many or f"{one}s"


def _named(items: Collection[str], one: str = "container") -> str:
    return f"{_count(items, one)} {_quoted(items)}"


def _setters(pod: Pod, is_bad: Callable[[Object], bool]) -> str:
    """Return the pod and the containers whose security context is bad; empty if none is."""
    bad = ["pod"] if is_bad(pod.context) else []
    containers = [name for name, context in pod.contexts if is_bad(context)]
    if containers:
        bad.append(_named(containers))
    return " and ".join(bad)


def _profile_setters(pod: Pod, field: str) -> tuple[str, set[str]]:
    """Return what sets a forbidden profile, as text, and the forbidden types."""
    values: set[str] = set()

    def is_bad(context: Object) -> bool:
        profile = context.get(field)
        if profile is None or profile.get("type") in _PROFILES:
            return False
        values.add(str(profile.get("type", "")))
        return True

    return _setters(pod, is_bad), values


# Baseline


def app_armor_profile(pod: Pod) -> Violation | None:
    text, values = _profile_setters(pod, "appArmorProfile")
    setters = [text] if text else []
    annotations = sorted(
        f'{key}="{value}"'
        for key, value in pod.annotations.items()
        if key.startswith(_APP_ARMOR)
        and value not in ("", "runtime/default")
        and not value.startswith("localhost/")
    )
    if annotations:
        setters.append(_count(annotations, "annotation"))
    if not setters:
        return None
    listed = [*sorted(values), *annotations]
    reason = f"forbidden AppArmor {_count(listed, 'profile')}"
    return (
        reason,
        f"{' and '.join(setters)} must not set AppArmor profile type to {_quoted(listed)}",
    )


def capabilities_baseline(pod: Pod) -> Violation | None:
    bad, added = [], set()
    for name, context in pod.contexts:
        more = set((context.get("capabilities") or {}).get("add") or ()) - _CAPABILITIES
        if more:
            bad.append(name)
            added |= more
    if not bad:
        return None
    where = "in securityContext.capabilities.add"
    detail = f"{_named(bad)} must not include {_quoted(sorted(added))} {where}"
    return "non-default capabilities", detail


def host_namespaces(pod: Pod) -> Violation | None:
    fields = ("hostNetwork", "hostPID", "hostIPC")
    used = [f"{field}=true" for field in fields if pod.spec.get(field)]
    return ("host namespaces", ", ".join(used)) if used else None


def _volumes(pod: Pod) -> Iterator[Object]:
    yield from pod.spec.get("volumes") or ()


def host_path_volumes(pod: Pod) -> Violation | None:
    bad = [str(v.get("name")) for v in _volumes(pod) if v.get("hostPath") is not None]
    return ("hostPath volumes", _named(bad, "volume")) if bad else None


def host_ports(pod: Pod) -> Violation | None:
    bad, ports = [], set()
    for container in pod.containers:
        used = {str(p["hostPort"]) for p in container.get("ports") or () if p.get("hostPort")}
        if used:
            bad.append(str(container.get("name", "")))
            ports |= used
    if not bad:
        return None
    uses = f"{_count(bad, 'uses', 'use')} {_count(ports, 'hostPort')}"
    return "hostPort", f"{_named(bad)} {uses} {', '.join(sorted(ports))}"


def host_probes(pod: Pod) -> Violation | None:
    bad, hosts = set(), set()
    for container in pod.containers:
        lifecycle = container.get("lifecycle") or {}
        handlers = [container.get(f"{kind}Probe") for kind in ("liveness", "readiness", "startup")]
        handlers += [lifecycle.get("postStart"), lifecycle.get("preStop")]
        used = {
            str((handler.get(how) or {}).get("host"))
            for handler in handlers
            for how in ("httpGet", "tcpSocket")
            if handler and (handler.get(how) or {}).get("host")
        }
        if used:
            bad.add(str(container.get("name", "")))
            hosts |= used
    if not bad:
        return None
    what = _count(hosts, "probe or lifecycle host")
    uses = f"{_count(bad, 'uses', 'use')} {what} {_quoted(sorted(hosts))}"
    return "probe or lifecycle host", f"{_named(sorted(bad))} {uses}"


def privileged(pod: Pod) -> Violation | None:
    bad = [name for name, context in pod.contexts if context.get("privileged")]
    if not bad:
        return None
    return "privileged", f"{_named(bad)} must not set securityContext.privileged=true"


def proc_mount(pod: Pod) -> Violation | None:
    bad, values = [], set()
    for name, context in pod.contexts:
        value = context.get("procMount")
        if value is not None and value != "Default":
            bad.append(name)
            values.add(str(value))
    if not bad:
        return None
    listed = _quoted(sorted(values))
    return "procMount", f"{_named(bad)} must not set securityContext.procMount to {listed}"


def proc_mount_baseline(pod: Pod) -> Violation | None:
    return None if pod.has_own_users else proc_mount(pod)


def se_linux_options(pod: Pod) -> Violation | None:
    types: set[str] = set()
    is_set: set[str] = set()

    def is_bad(context: Object) -> bool:
        options = context.get("seLinuxOptions") or {}
        bad = False
        if (options.get("type") or "") not in _SE_LINUX_TYPES:
            types.add(options["type"])
            bad = True
        for field in ("user", "role"):
            if options.get(field):
                is_set.add(field)
                bad = True
        return bad

    setters = _setters(pod, is_bad)
    if not setters:
        return None
    data = [f"{_count(types, 'type')} {_quoted(sorted(types))}"] if types else []
    data += [f"{field} may not be set" for field in ("user", "role") if field in is_set]
    detail = f"{setters} set forbidden securityContext.seLinuxOptions: {'; '.join(data)}"
    return "seLinuxOptions", detail


def _forbidden_seccomp(pod: Pod) -> Violation | None:
    setters, values = _profile_setters(pod, "seccompProfile")
    if not setters:
        return None
    listed = _quoted(sorted(values))
    detail = f"{setters} must not set securityContext.seccompProfile.type to {listed}"
    return "seccompProfile", detail


def seccomp_baseline(pod: Pod) -> Violation | None:
    return _forbidden_seccomp(pod)


def sysctls(pod: Pod) -> Violation | None:
    names = [str(s.get("name")) for s in pod.context.get("sysctls") or ()]
    bad = [name for name in names if name not in _SYSCTLS]
    return ("forbidden sysctls", ", ".join(bad)) if bad else None


def windows_host_process(pod: Pod) -> Violation | None:
    setters = _setters(pod, lambda c: bool((c.get("windowsOptions") or {}).get("hostProcess")))
    if not setters:
        return None
    detail = f"{setters} must not set securityContext.windowsOptions.hostProcess=true"
    return "hostProcess", detail


# Restricted


def allow_privilege_escalation(pod: Pod) -> Violation | None:
    bad = [name for name, c in pod.contexts if c.get("allowPrivilegeEscalation") is not False]
    if not bad or pod.is_windows:
        return None
    detail = f"{_named(bad)} must set securityContext.allowPrivilegeEscalation=false"
    return "allowPrivilegeEscalation != false", detail


def capabilities_restricted(pod: Pod) -> Violation | None:
    if pod.is_windows:
        return None
    keeping, adding, added = [], [], set()
    for name, context in pod.contexts:
        capabilities = context.get("capabilities") or {}
        if "ALL" not in (capabilities.get("drop") or ()):
            keeping.append(name)
        more = set(capabilities.get("add") or ()) - {"NET_BIND_SERVICE"}
        if more:
            adding.append(name)
            added |= more
    details = []
    if keeping:
        details.append(f'{_named(keeping)} must set securityContext.capabilities.drop=["ALL"]')
    if adding:
        where = "in securityContext.capabilities.add"
        details.append(f"{_named(adding)} must not include {_quoted(sorted(added))} {where}")
    return ("unrestricted capabilities", "; ".join(details)) if details else None


def restricted_volumes(pod: Pod) -> Violation | None:
    bad, types = [], set()
    for volume in _volumes(pod):
        # A volume without a source is an emptyDir.
        if len(volume) > 1 and all(volume.get(kind) is None for kind in _VOLUMES):
            bad.append(str(volume.get("name")))
            found = (kind for kind in _RESTRICTED_VOLUMES if volume.get(kind) is not None)
            types.add(next(found, "unknown"))
    if not bad:
        return None
    what = f"{_count(types, 'restricted volume type')} {_quoted(sorted(types))}"
    uses = f"{_count(bad, 'uses', 'use')} {what}"
    return "restricted volume types", f"{_named(bad, 'volume')} {uses}"


def _unset(pod: Pod, field: str, is_set_by_pod: bool) -> list[str]:
    """Return the containers that neither set a field nor inherit it from the pod."""
    if is_set_by_pod:
        return []
    return [name for name, context in pod.contexts if context.get(field) is None]


def run_as_non_root(pod: Pod) -> Violation | None:
    if pod.has_own_users:
        return None
    reason = "runAsNonRoot != true"
    setters = _setters(pod, lambda context: context.get("runAsNonRoot") is False)
    if setters:
        return reason, f"{setters} must not set securityContext.runAsNonRoot=false"
    bad = _unset(pod, "runAsNonRoot", pod.context.get("runAsNonRoot") is True)
    if not bad:
        return None
    return reason, f"pod or {_named(bad)} must set securityContext.runAsNonRoot=true"


def run_as_user(pod: Pod) -> Violation | None:
    if pod.has_own_users:
        return None

    def is_root(context: Object) -> bool:
        user: Any = context.get("runAsUser")
        return user is not None and user == 0

    setters = _setters(pod, is_root)
    return ("runAsUser=0", f"{setters} must not set runAsUser=0") if setters else None


def seccomp_restricted(pod: Pod) -> Violation | None:
    if pod.is_windows:
        return None
    forbidden = _forbidden_seccomp(pod)
    if forbidden is not None:
        return forbidden
    bad = _unset(pod, "seccompProfile", pod.context.get("seccompProfile") is not None)
    if not bad:
        return None
    wanted = 'securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    return "seccompProfile", f"pod or {_named(bad)} must set {wanted}"

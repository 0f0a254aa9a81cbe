"""Which checks make up each level, and their result as Kubernetes words it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hekla.api.pod_security import checks
from hekla.api.pod_security.checks import Pod, Violation
from hekla.units.objects import Object

Check = Callable[[Pod], Violation | None]

# In the order of Kubernetes' check identifiers, so that messages are equal.
BASELINE: dict[str, Check] = {
    "appArmorProfile": checks.app_armor_profile,
    "capabilities_baseline": checks.capabilities_baseline,
    "hostNamespaces": checks.host_namespaces,
    "hostPathVolumes": checks.host_path_volumes,
    "hostPorts": checks.host_ports,
    "hostProbesAndHostLifecycle": checks.host_probes,
    "privileged": checks.privileged,
    "procMount": checks.proc_mount_baseline,
    "seLinuxOptions": checks.se_linux_options,
    "seccompProfile_baseline": checks.seccomp_baseline,
    "sysctls": checks.sysctls,
    "windowsHostProcess": checks.windows_host_process,
}
# Stricter checks of `restricted` replace these.
_REPLACED = ("capabilities_baseline", "hostPathVolumes", "procMount", "seccompProfile_baseline")
RESTRICTED: dict[str, Check] = {
    **{name: check for name, check in BASELINE.items() if name not in _REPLACED},
    "allowPrivilegeEscalation": checks.allow_privilege_escalation,
    "capabilities_restricted": checks.capabilities_restricted,
    "procMount_restricted": checks.proc_mount,
    "restrictedVolumes": checks.restricted_volumes,
    "runAsNonRoot": checks.run_as_non_root,
    "runAsUser": checks.run_as_user,
    "seccompProfile_restricted": checks.seccomp_restricted,
}
_LEVELS: dict[str, dict[str, Check]] = {
    "privileged": {},
    "baseline": BASELINE,
    "restricted": RESTRICTED,
}


def _found(level: str, pod: Object) -> Iterator[Violation]:
    table = _LEVELS[level]
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    if not table or (table is BASELINE and checks.is_plain(metadata, spec)):
        return
    view = Pod(metadata, spec)
    for check in table.values():
        violation = check(view)
        if violation is not None:
            yield violation


def violations(level: str, pod: Object) -> str:
    """Return what a level forbids of a pod or template, in detail; empty if nothing."""
    return ", ".join(
        f"{reason} ({detail})" if detail else reason for reason, detail in _found(level, pod)
    )


def reasons(level: str, pod: Object) -> str:
    """Return the reasons without details; empty if the level allows the pod."""
    return ", ".join(reason for reason, _ in _found(level, pod))

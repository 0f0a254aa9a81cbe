"""securityContext: what a container may do, and which fields are refused."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.nodeagent.security_context import (
    DEFAULT_CAPABILITIES,
    Abilities,
    RunsAsRoot,
    SecurityContextRefused,
    check_non_root,
    pod_credentials,
)
from hekla.units.objects import Object

NAMESPACE = Abilities("namespace", True, True, True, 0, 0)
ROOT = Abilities("owner", True, True, True, 0, 0)
USER = Abilities("owner", False, True, False, 1000, 100)
BARE = Abilities("owner", False, False, False, 1000, 100)


def pod(container: Object | None = None, context: Object | None = None, **spec: Any) -> Object:
    main = {"name": "main", "image": "host", "securityContext": container or {}}
    return {
        "metadata": {"name": "p", "namespace": "ml", "annotations": spec.pop("annotations", {})},
        "spec": {"containers": [main], "securityContext": context or {}, **spec},
    }


def test_container_overrides_the_pod() -> None:
    made = pod({"runAsUser": 7}, {"runAsUser": 5, "runAsGroup": 6, "supplementalGroups": [8, 9]})
    main = pod_credentials(made, NAMESPACE)["main"]
    assert (main.uid, main.gid, main.groups) == (7, 6, (8, 9))


@pytest.mark.parametrize(
    ("abilities", "want_ids"), [(NAMESPACE, (0, 0)), (ROOT, (0, 0)), (USER, (1000, 100))]
)
def test_defaults_are_safe(abilities: Abilities, want_ids: tuple[int, int]) -> None:
    main = pod_credentials(pod(), abilities)["main"]
    assert (main.uid, main.gid) == want_ids
    assert main.no_new_privileges
    assert main.seccomp
    assert main.capabilities == DEFAULT_CAPABILITIES
    assert not main.privileged


def test_stated_exceptions_are_honoured() -> None:
    context = {
        "allowPrivilegeEscalation": True,
        "seccompProfile": {"type": "Unconfined"},
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE", "CAP_CHOWN"]},
    }
    main = pod_credentials(pod(context), NAMESPACE)["main"]
    assert not main.no_new_privileges
    assert not main.seccomp
    assert main.read_only_root
    assert main.capabilities == frozenset({"NET_BIND_SERVICE", "CHOWN"})


def test_root_as_owner_may_run_privileged_containers() -> None:
    main = pod_credentials(pod({"privileged": True}), ROOT)["main"]
    assert main.privileged
    assert main.capability_mask is None


MAIN = "spec.containers[0].securityContext"
REFUSED: dict[str, tuple[Object, Abilities, str]] = {
    "privileged in a user namespace": (
        pod({"privileged": True}), NAMESPACE, f"{MAIN}.privileged"),
    "privileged without root": (pod({"privileged": True}), USER, f"{MAIN}.privileged"),
    "a user outside the range": (pod({"runAsUser": 65536}), NAMESPACE, f"{MAIN}.runAsUser"),
    "another user without root": (pod({"runAsUser": 0}), USER, f"{MAIN}.runAsUser"),
    "another group without root": (pod({"runAsGroup": 7}), USER, f"{MAIN}.runAsGroup"),
    "a group of the pod without root": (
        pod(context={"fsGroup": 7}), USER, "spec.securityContext.fsGroup"),
    "a group outside the range": (
        pod(context={"supplementalGroups": [1, 70000]}), NAMESPACE,
        "spec.securityContext.supplementalGroups[1]"),
    "a capability over the machine": (
        pod({"capabilities": {"add": ["CHOWN", "SYS_ADMIN"]}}), NAMESPACE,
        f"{MAIN}.capabilities.add[1]"),
    "all capabilities": (
        pod({"capabilities": {"add": ["ALL"]}}), NAMESPACE, f"{MAIN}.capabilities.add[0]"),
    "an unknown capability": (
        pod({"capabilities": {"drop": ["FLY"]}}), NAMESPACE, f"{MAIN}.capabilities.drop"),
    "a profile file": (
        pod({"seccompProfile": {"type": "Localhost", "localhostProfile": "x"}}), NAMESPACE,
        f"{MAIN}.seccompProfile.type"),
    "AppArmor": (
        pod({"appArmorProfile": {"type": "RuntimeDefault"}}), NAMESPACE, f"{MAIN}.appArmorProfile"),
    "AppArmor by annotation": (
        pod(annotations={"container.apparmor.security.beta.kubernetes.io/main": "localhost/x"}),
        NAMESPACE,
        "metadata.annotations[container.apparmor.security.beta.kubernetes.io/main]"),
    "SELinux": (pod({"seLinuxOptions": {"level": "s0"}}), NAMESPACE, f"{MAIN}.seLinuxOptions"),
    "Windows": (
        pod(context={"windowsOptions": {"hostProcess": True}}), NAMESPACE,
        "spec.securityContext.windowsOptions"),
    "an unmasked /proc": (pod({"procMount": "Unmasked"}), NAMESPACE, f"{MAIN}.procMount"),
    "a sysctl of the machine": (
        pod(context={"sysctls": [{"name": "vm.swappiness", "value": "1"}]}), NAMESPACE,
        "spec.securityContext.sysctls[0]"),
    "a network sysctl on the host's network": (
        pod(context={"sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}]},
            hostNetwork=True), NAMESPACE, "spec.securityContext.sysctls[0]"),
    "the host's processes": (pod(hostPID=True), NAMESPACE, "spec.hostPID"),
    "the host's IPC": (pod(hostIPC=True), NAMESPACE, "spec.hostIPC"),
    "shared processes": (pod(shareProcessNamespace=True), ROOT, "spec.shareProcessNamespace"),
    "the host's users": (pod(hostUsers=True), NAMESPACE, "spec.hostUsers"),
    "own users as owner": (pod(hostUsers=False), ROOT, "spec.hostUsers"),
    "a read-only root without mounts": (
        pod({"readOnlyRootFilesystem": True}), BARE, f"{MAIN}.readOnlyRootFilesystem"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_field_that_cannot_be_honoured_is_refused_by_name(case: str) -> None:
    made, abilities, want_field = REFUSED[case]
    with pytest.raises(SecurityContextRefused) as caught:
        pod_credentials(made, abilities)
    assert caught.value.field == want_field
    assert str(caught.value).startswith(want_field)


def test_non_root_container_that_would_be_root_does_not_start() -> None:
    wants = {"runAsNonRoot": True}
    for made, words in (
        (pod(wants), "container has runAsNonRoot and image will run as root"),
        (pod({"runAsUser": 0}, wants), "breaks non-root policy"),
    ):
        given = pod_credentials(made, NAMESPACE)["main"]
        with pytest.raises(RunsAsRoot, match=words):
            check_non_root(made, made["spec"]["containers"][0], given)
    fine = pod({"runAsUser": 5}, wants)
    given = pod_credentials(fine, NAMESPACE)["main"]
    check_non_root(fine, fine["spec"]["containers"][0], given)

"""Pod Security Standards: the same pods on hekla's server and on kube-apiserver, same verdicts.

Each violating pod is sent with `dryRun=All` to a namespace that enforces the level.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.both.conftest import Api

LABEL = "pod-security.kubernetes.io/"
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def spec(context: Any = None, pod: Any = None, **more: Any) -> dict[str, Any]:
    """A pod's spec from the security contexts of container and pod, and other fields."""
    container = {"name": "a", "image": "x"}
    if context is not None:
        container["securityContext"] = context
    made = {"containers": [{**container, **more.pop("container", {})}], **more}
    return made if pod is None else {**made, "securityContext": pod}


BASELINE: dict[str, dict[str, Any]] = {
    "a privileged container": spec({"privileged": True}),
    "a privileged init container": spec(
        initContainers=[{"name": "i", "image": "x", "securityContext": {"privileged": True}}]
    ),
    "two privileged containers": {
        "containers": [
            {"name": name, "image": "x", "securityContext": {"privileged": True}} for name in "ab"
        ]
    },
    "the host's network": spec(hostNetwork=True),
    "the host's processes": spec(hostPID=True),
    "the host's IPC": spec(hostIPC=True),
    "a host path": spec(volumes=[{"name": "v", "hostPath": {"path": "/etc"}}]),
    "two host paths": spec(volumes=[{"name": n, "hostPath": {"path": "/etc"}} for n in ("v", "w")]),
    "a host port": spec(container={"ports": [{"containerPort": 80, "hostPort": 80}]}),
    "two host ports": spec(
        container={"ports": [{"containerPort": p, "hostPort": p} for p in (80, 443)]}
    ),
    "a probe of another host": spec(
        container={"livenessProbe": {"httpGet": {"port": 80, "host": "10.0.0.1"}}}
    ),
    "a lifecycle hook to another host": spec(
        container={"lifecycle": {"preStop": {"tcpSocket": {"port": 80, "host": "10.0.0.1"}}}}
    ),
    "a capability": spec({"capabilities": {"add": ["NET_RAW", "SYS_ADMIN", "CHOWN"]}}),
    "all capabilities": spec({"capabilities": {"add": ["ALL"]}}),
    "unconfined seccomp": spec({"seccompProfile": {"type": "Unconfined"}}),
    "unconfined seccomp of the pod": spec(pod={"seccompProfile": {"type": "Unconfined"}}),
    "unconfined AppArmor": spec({"appArmorProfile": {"type": "Unconfined"}}),
    "unconfined AppArmor of the pod": spec(pod={"appArmorProfile": {"type": "Unconfined"}}),
    "an SELinux type": spec({"seLinuxOptions": {"type": "spc_t"}}),
    "an SELinux user and role": spec(
        {"seLinuxOptions": {"user": "system_u"}}, pod={"seLinuxOptions": {"role": "sysadm_r"}}
    ),
    "a system control": spec(pod={"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}),
    "many at once": spec(
        {"privileged": True}, hostNetwork=True, volumes=[{"name": "v", "hostPath": {"path": "/"}}]
    ),
}
ONLY_RESTRICTED: dict[str, dict[str, Any]] = {
    "no security context": spec(),
    "root by runAsUser": spec({**RESTRICTED, "runAsUser": 0}),
    "root by runAsUser of the pod": spec(RESTRICTED, pod={"runAsUser": 0}),
    "runAsNonRoot false": spec({**RESTRICTED, "runAsNonRoot": False}),
    "runAsNonRoot unset": spec({k: v for k, v in RESTRICTED.items() if k != "runAsNonRoot"}),
    "privilege escalation": spec({**RESTRICTED, "allowPrivilegeEscalation": True}),
    "a kept capability": spec({**RESTRICTED, "capabilities": {"drop": ["NET_RAW"]}}),
    "an added capability": spec(
        {**RESTRICTED, "capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}}
    ),
    "no seccomp": spec({k: v for k, v in RESTRICTED.items() if k != "seccompProfile"}),
    "an NFS volume": spec(RESTRICTED, volumes=[{"name": "v", "nfs": {"server": "s", "path": "/"}}]),
}
ALLOWED: dict[str, dict[str, Any]] = {
    "all restricted fields": spec(RESTRICTED),
    "restricted fields of the pod": spec(
        {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        pod={"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    ),
    "NET_BIND_SERVICE": spec(
        {**RESTRICTED, "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}
    ),
    "a safe system control": spec(
        RESTRICTED, pod={"sysctls": [{"name": "net.ipv4.tcp_rmem", "value": "1 2 3"}]}
    ),
    "volumes": spec(
        RESTRICTED,
        volumes=[{"name": "a"}, {"name": "b", "emptyDir": {}}, {"name": "c", "configMap": {
            "name": "x"}}],
    ),
}  # fmt: skip
CASES = {
    **{("baseline", what): body for what, body in BASELINE.items()},
    **{("restricted", what): body for what, body in {**BASELINE, **ONLY_RESTRICTED}.items()},
    **{("restricted", what): body for what, body in ALLOWED.items()},
    **{("baseline", what): body for what, body in ONLY_RESTRICTED.items()},
}
_ANSWERS: dict[tuple[str, str], dict[bool, tuple[int, str]]] = {}


def create(api: Api, namespace: str, body: dict[str, Any], query: str = "?dryRun=All") -> Any:
    pod = {"metadata": {"name": "p"}, "spec": body}
    return api.post(f"/api/v1/namespaces/{namespace}/pods{query}", pod)


@pytest.fixture(scope="module")
def levels(server: Any) -> dict[str, str]:
    """A namespace for each level."""
    api = Api(server)
    for level in ("privileged", "baseline", "restricted"):
        labels = {f"{LABEL}enforce": level, f"{LABEL}warn": "privileged"}
        body = {"metadata": {"name": f"level-{level}", "labels": labels}}
        api.post("/api/v1/namespaces", body)
    return {level: f"level-{level}" for level in ("privileged", "baseline", "restricted")}


@pytest.mark.parametrize(("level", "what"), CASES)
def test_pod_gets_the_verdict_of_kubernetes(
    api: Api, levels: dict[str, str], is_real: bool, level: str, what: str
) -> None:
    answer = create(api, levels[level], CASES[level, what])
    if what in BASELINE or (what in ONLY_RESTRICTED and level == "restricted"):
        assert answer.status == 403
        assert f'pods "p" is forbidden: violates PodSecurity "{level}:latest": ' in answer.message
    else:
        assert answer.status == 201, answer.body
    answers = _ANSWERS.setdefault((level, what), {})
    answers[is_real] = (answer.status, answer.message)
    assert len(set(answers.values())) == 1
    assert create(api, levels["privileged"], CASES[level, what]).status == 201


def test_message_names_level_container_and_field(api: Api, levels: dict[str, str]) -> None:
    answer = create(api, levels["baseline"], BASELINE["a privileged container"])
    assert answer.message == (
        'pods "p" is forbidden: violates PodSecurity "baseline:latest": privileged (container "a" '
        "must not set securityContext.privileged=true)"
    )


def test_annotation_of_an_unconfined_app_armor_profile_is_refused(
    api: Api, levels: dict[str, str]
) -> None:
    note = {"container.apparmor.security.beta.kubernetes.io/a": "unconfined"}
    pod = {"metadata": {"name": "p", "annotations": note}, "spec": spec()}
    path = f"/api/v1/namespaces/{levels['baseline']}/pods?dryRun=All"
    answer = api.post(path, pod)
    assert (answer.status, "AppArmor profile" in answer.message) == (403, True)


def labelled(api: Api, name: str, **modes: str) -> Any:
    labels = {f"{LABEL}{mode.replace('_', '-')}": level for mode, level in modes.items()}
    return api.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})


def test_invalid_level_or_version_of_a_namespace_is_refused(api: Api, unique: str) -> None:
    answer = labelled(api, unique, enforce="strict")
    assert answer.status == 422
    assert "must be one of privileged, baseline, restricted" in answer.message
    answer = labelled(api, unique, enforce_version="v2")
    assert answer.status == 422
    assert 'must be "latest" or "v1.x"' in answer.message


def test_warning_names_what_a_stricter_level_would_refuse(api: Api, unique: str) -> None:
    labelled(api, unique, enforce="privileged", warn="restricted", audit="restricted").ok()
    answer = create(api, unique, spec())
    assert answer.status == 201
    assert len(answer.warnings) == 1
    assert 'would violate PodSecurity \\"restricted:latest\\"' in answer.warnings[0]


def test_stricter_enforcement_also_warns_of_workloads(api: Api, unique: str) -> None:
    labelled(api, unique, enforce="restricted").ok()
    labels = {"matchLabels": {"a": "b"}}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": spec()}
    body = {"metadata": {"name": "d"}, "spec": {"selector": labels, "template": template}}
    answer = api.post(f"/apis/apps/v1/namespaces/{unique}/deployments?dryRun=All", body)
    assert answer.status == 201
    assert any("would violate PodSecurity" in text for text in answer.warnings)
    once = {"template": {"spec": {**spec(), "restartPolicy": "Never"}}}
    cron = {"schedule": "@daily", "jobTemplate": {"spec": once}}
    path = f"/apis/batch/v1/namespaces/{unique}"
    for kind, inner in (("jobs", once), ("cronjobs", cron)):
        answer = api.post(f"{path}/{kind}?dryRun=All", {"metadata": {"name": "j"}, "spec": inner})
        assert any("would violate PodSecurity" in text for text in answer.warnings), kind


def test_stricter_label_warns_of_running_pods(api: Api, unique: str) -> None:
    labelled(api, unique, enforce="privileged").ok()
    create(api, unique, BASELINE["a privileged container"], query="").ok()
    patch = {"metadata": {"labels": {f"{LABEL}enforce": "baseline"}}}
    answer = api.merge(f"/api/v1/namespaces/{unique}?dryRun=All", patch)
    assert answer.status == 200
    assert any("existing pods in namespace" in text for text in answer.warnings)
    assert "p: privileged" in answer.warnings


def test_tenant_cannot_change_the_level_of_its_namespace(
    tenant: Api, api: Api, namespace: str
) -> None:
    patch = {"metadata": {"labels": {f"{LABEL}enforce": "privileged"}}}
    assert tenant.merge(f"/api/v1/namespaces/{namespace}", patch).status == 403


def test_pod_update_to_another_image_is_checked_again(api: Api, unique: str) -> None:
    labelled(api, unique, enforce="privileged").ok()
    create(api, unique, BASELINE["a privileged container"], query="").ok()
    api.merge(f"/api/v1/namespaces/{unique}", {
        "metadata": {"labels": {f"{LABEL}enforce": "baseline"}}}).ok()  # fmt: skip
    path = f"/api/v1/namespaces/{unique}/pods/p"
    api.merge(path, {"metadata": {"labels": {"a": "b"}}}).ok()
    patch = [{"op": "replace", "path": "/spec/containers/0/image", "value": "y"}]
    answer = api("PATCH", path, patch, "application/json-patch+json")
    assert (answer.status, "violates PodSecurity" in answer.message) == (403, True)

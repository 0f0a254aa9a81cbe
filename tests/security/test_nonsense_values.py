"""Numbers and amounts without sense are refused with their field; never an internal error."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from hekla.units.objects import Object
from tests.apiserver.both.conftest import Api

HUGE = 10**15
embedded_only = pytest.mark.parametrize("server", ["embedded"], indirect=True)
VOLCANO = "/apis/scheduling.volcano.sh/v1beta1"
CONTAINERS = [{"name": "c", "image": "x"}]
SECONDS = {"negative": -1, "huge": 2**62, "zero": 0, "a fraction": 600.5, "text": "600"}
AMOUNTS = ["-1", "1e999999999", "1e-999999999", "9" * 300, "1Zi", "", "0x10", "1e", "NaN"]


@pytest.mark.parametrize("seconds", SECONDS.values(), ids=SECONDS)
def test_token_of_nonsense_duration_is_refused(api: Api, namespace: str, seconds: Any) -> None:
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    api.post(accounts, {"metadata": {"name": "sa"}})
    body = {"spec": {"expirationSeconds": seconds}}
    assert api.post(f"{accounts}/sa/token", body).status in (400, 422)


def pod(**spec: Any) -> Object:
    return {"metadata": {"name": "p"}, "spec": {"containers": CONTAINERS, **spec}}


@embedded_only  # kube-apiserver accepts it
def test_pod_with_an_endless_grace_period_is_refused(api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    reply = api.post(path, pod(terminationGracePeriodSeconds=HUGE))
    assert reply.status == 422
    assert "spec.terminationGracePeriodSeconds" in reply.message


@embedded_only  # kube-apiserver keeps the number, and the time of deletion overflows
def test_huge_grace_period_of_a_deletion_is_cut(api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    api.post(path, pod(nodeName="nowhere")).ok()
    deleted = api("DELETE", f"{path}/p", {"gracePeriodSeconds": HUGE}).ok()
    assert deleted["metadata"]["deletionGracePeriodSeconds"] == 2**31 - 1


def test_negative_grace_period_is_a_second_and_a_longer_number_is_refused(
    api: Api, namespace: str
) -> None:
    account = {"metadata": {"name": "default"}}
    api.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
    path = f"/api/v1/namespaces/{namespace}/pods"
    api.post(path, pod(nodeName="nowhere", automountServiceAccountToken=False)).ok()
    assert api("DELETE", f"{path}/p", {"gracePeriodSeconds": 10**30}).status == 400
    deleted = api("DELETE", f"{path}/p", {"gracePeriodSeconds": -5}).ok()
    assert deleted["metadata"]["deletionGracePeriodSeconds"] == 1


@embedded_only  # the kinds of Volcano are not installed here
@pytest.mark.parametrize("amount", AMOUNTS)
def test_amounts_without_sense_are_refused(api: Api, namespace: str, amount: str) -> None:
    group: Object = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
    group |= {"metadata": {"name": "g"}, "spec": {"minResources": {"cpu": amount}}}
    reply = api.post(f"{VOLCANO}/namespaces/{namespace}/podgroups", group)
    assert (reply.status, "spec.minResources" in reply.message) == (422, True), reply.body
    queue: Object = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
    queue |= {"metadata": {"name": "q"}, "spec": {"capability": {"cpu": amount}}}
    assert api.post(f"{VOLCANO}/queues", queue).status == 422
    resources = {"resources": {"requests": {"cpu": amount}}}
    reply = api.post(
        f"/api/v1/namespaces/{namespace}/pods", pod(containers=[{**CONTAINERS[0], **resources}])
    )
    assert reply.status in (400, 422)


@embedded_only  # the kinds of Volcano are not installed here
def test_pod_group_of_negative_members_is_refused(api: Api, namespace: str) -> None:
    group: Object = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
    group |= {"metadata": {"name": "g"}, "spec": {"minMember": -1}}
    assert api.post(f"{VOLCANO}/namespaces/{namespace}/podgroups", group).status == 422


TEMPLATE = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {"containers": CONTAINERS, "restartPolicy": "Never"},
}
SERVED = {**TEMPLATE, "spec": {"containers": CONTAINERS}}
SELECTOR = {"matchLabels": {"a": "b"}}
KINDS: dict[str, tuple[str, Object]] = {
    "pods": ("/api/v1", {"containers": CONTAINERS, "tolerations": [{"operator": "Exists"}]}),
    "services": ("/api/v1", {"ports": [{"port": 80}]}),
    "jobs": ("/apis/batch/v1", {"template": TEMPLATE}),
    "cronjobs": (
        "/apis/batch/v1",
        {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": TEMPLATE}}},
    ),
    "deployments": ("/apis/apps/v1", {"selector": SELECTOR, "template": SERVED}),
    "statefulsets": ("/apis/apps/v1", {"selector": SELECTOR, "template": SERVED}),
    "leases": ("/apis/coordination.k8s.io/v1", {}),
    "poddisruptionbudgets": ("/apis/policy/v1", {"selector": SELECTOR}),
}
FIELDS: dict[str, tuple[str, ...]] = {
    "pods": (
        "activeDeadlineSeconds",
        "terminationGracePeriodSeconds",
        "priority",
        "tolerations.0.tolerationSeconds",
        "securityContext.runAsUser",
        "containers.0.ports.0.containerPort",
        "containers.0.livenessProbe.periodSeconds",
    ),
    "services": ("ports.0.port", "ports.0.nodePort", "healthCheckNodePort"),
    "jobs": (
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
    ),
    "cronjobs": ("startingDeadlineSeconds", "successfulJobsHistoryLimit"),
    "deployments": (
        "replicas",
        "minReadySeconds",
        "revisionHistoryLimit",
        "progressDeadlineSeconds",
    ),
    "statefulsets": ("replicas", "minReadySeconds", "ordinals.start"),
    "leases": ("leaseDurationSeconds", "leaseTransitions"),
    "poddisruptionbudgets": ("minAvailable", "maxUnavailable"),
}
NUMBERS = (-1, -(2**63), 2**31, 2**63, 10**15, 10**30, 0.5, 1e300)


def with_field(spec: Object, path: str, value: Any) -> Object:
    made: Any = copy.deepcopy(spec)
    at, parts = made, path.split(".")
    for part, after in zip(parts, [*parts[1:], ""], strict=True):
        if not after:
            at[int(part) if part.isdigit() else part] = value
        elif part.isdigit():
            while len(at) <= int(part):
                at.append({})
            at = at[int(part)]
        else:
            at = at.setdefault(part, [] if after.isdigit() else {})
    result: Object = made
    return result


@embedded_only  # a test of hekla's server
@pytest.mark.parametrize("plural", KINDS)
def test_numbers_out_of_range_never_cause_an_internal_error(
    api: Api, namespace: str, plural: str
) -> None:
    group, spec = KINDS[plural]
    path = f"{group}/namespaces/{namespace}/{plural}"
    for field in FIELDS[plural]:
        for number in NUMBERS:
            body = {"metadata": {"name": "n"}, "spec": with_field(spec, field, number)}
            reply = api.post(path, body)
            assert reply.status < 500, (field, number, reply.body)
            if reply.status < 300:
                assert api.delete(f"{path}/n").status < 300, (field, number)
                api("DELETE", f"{path}/n", {"gracePeriodSeconds": 0})


def test_watch_of_endless_time_is_served(api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    api.post(path, {"metadata": {"name": "m"}}).ok()
    lines = api.lines(f"{path}?watch=1&timeoutSeconds={10**9}", 1)
    assert lines[0]["type"] == "ADDED"
    endless = api.lines(f"{path}?watch=1&timeoutSeconds={10**400}", 1)
    assert [each.get("type") or each.get("code") for each in endless] in (["ADDED"], [400])

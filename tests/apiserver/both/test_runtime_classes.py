"""RuntimeClass admission and validation on hekla's API server and kube-apiserver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hekla.units.objects import Object
from tests.apiserver.both.conftest import Api

CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
LIMITED: Object = {"key": "sandbox", "operator": "Exists", "effect": "NoSchedule"}


@pytest.fixture
def heavy(api: Api, unique: str, namespace: str) -> Iterator[str]:
    """A class with overhead and scheduling, and a service account for its pods."""
    body = {
        "metadata": {"name": unique},
        "handler": "oci",
        "overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}},
        "scheduling": {"nodeSelector": {"kind": "sandboxed"}, "tolerations": [LIMITED]},
    }
    api.post(CLASSES, body).ok()
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    api.post(accounts, {"metadata": {"name": "default"}})
    yield unique
    api.delete(f"{CLASSES}/{unique}").ok()


def create(api: Api, namespace: str, name: str, **spec: Any) -> Any:
    container = {"name": "c", "image": "busybox:1.36"}
    more = {"automountServiceAccountToken": False, "containers": [container], **spec}
    return api.post(
        f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": name}, "spec": more}
    )


def test_pod_takes_overhead_selector_and_tolerations(api: Api, heavy: str, namespace: str) -> None:
    cases: dict[str, tuple[Object, list[Object]]] = {
        "plain": ({}, [LIMITED]),
        "equal-amounts": ({"overhead": {"cpu": "0.25", "memory": "120Mi"}}, [LIMITED]),
        "wider": ({"tolerations": [{"key": "sandbox", "operator": "Exists"}]}, []),
        "narrower": (
            {"tolerations": [{"key": "sandbox", "value": "a", "effect": "NoSchedule"}]},
            [LIMITED],
        ),
    }
    for name, (spec, want) in cases.items():
        found = create(api, namespace, name, runtimeClassName=heavy, **spec).ok()["spec"]
        assert found["overhead"] == {"cpu": "250m", "memory": "120Mi"}, name
        assert found["nodeSelector"] == {"kind": "sandboxed"}, name
        given = [each for each in found["tolerations"] if each.get("key") == "sandbox"]
        assert given == (want or spec["tolerations"]), name


def test_refusals_are_the_same(api: Api, heavy: str, namespace: str) -> None:
    refused = 'pods "p" is forbidden: '
    cases: list[tuple[Object, str]] = [
        (
            {"runtimeClassName": "no-such-class"},
            f'{refused}pod rejected: RuntimeClass "no-such-class" not found',
        ),
        (
            {"runtimeClassName": heavy, "overhead": {"cpu": "1"}},
            f"{refused}pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
        ),
        (
            {"overhead": {"cpu": "1"}},
            f"{refused}pod rejected: Pod Overhead set without corresponding RuntimeClass defined "
            "Overhead",
        ),
        (
            {"runtimeClassName": heavy, "nodeSelector": {"kind": "other"}},
            f"{refused}conflict: runtimeClass.scheduling.nodeSelector[kind] = sandboxed; "
            "pod.spec.nodeSelector[kind] = other",
        ),
    ]
    for spec, want in cases:
        reply = create(api, namespace, "p", **spec)
        assert (reply.status, reply.message) == (403, want)


def test_classes_are_validated(api: Api, unique: str) -> None:
    wrong: dict[str, Object] = {
        "handler": {"handler": "No Label"},
        "overhead": {"overhead": {"podFixed": {"cpu": "-1"}}},
        "scheduling.nodeSelector": {"scheduling": {"nodeSelector": {"a b": "c"}}},
        "scheduling.tolerations": {"scheduling": {"tolerations": [{"operator": "Is"}]}},
    }
    for field, more in wrong.items():
        reply = api.post(CLASSES, {"metadata": {"name": unique}, "handler": "x", **more})
        assert reply.status == 422
        assert field in reply.message
    api.post(CLASSES, {"metadata": {"name": unique}, "handler": "x"}).ok()
    reply = api.merge(f"{CLASSES}/{unique}", {"handler": "y"})
    assert (reply.status, "handler" in reply.message) == (422, True)
    api.delete(f"{CLASSES}/{unique}").ok()

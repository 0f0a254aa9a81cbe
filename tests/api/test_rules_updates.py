"""Rules of updates: each row is an old object, a new one and exactly its errors."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.units.objects import Object
from tests.api.rule_bodies import (
    FORBIDDEN,
    INVALID,
    PORT,
    batch_job,
    binding,
    claim,
    found,
    obj,
    priority,
    secret,
    service,
    workload,
)


def bound(body: Any) -> Object:
    return {**body, "status": {"phase": "Bound"}}


UPDATES = {
    "an ordinary config map": (
        obj("v1", "ConfigMap", data={"a": "1"}),
        obj("v1", "ConfigMap", data={"a": "2"}),
        [],
    ),
    "an immutable config map": (
        obj("v1", "ConfigMap", data={"a": "1"}, immutable=True),
        obj("v1", "ConfigMap", data={"a": "2"}, immutable=True),
        [(FORBIDDEN, "data")],
    ),
    "making a secret mutable again": (
        secret(immutable=True),
        secret(),
        [(FORBIDDEN, "immutable")],
    ),
    "the type of a secret": (secret(), secret(type="example.com/x"), [(INVALID, "type")]),
    "the address of a service": (
        service(ports=[PORT], clusterIP="10.0.0.1"),
        service(ports=[PORT], clusterIP="10.0.0.2"),
        [(INVALID, "spec.clusterIPs[0]")],
    ),
    "a bound claim that grows": (
        bound(claim()),
        claim(resources={"requests": {"storage": "2Gi"}}),
        [],
    ),
    "a claim that shrinks": (
        bound(claim()),
        claim(resources={"requests": {"storage": "1Mi"}}),
        [(FORBIDDEN, "spec.resources.requests.storage")],
    ),
    "the access modes of a claim": (
        claim(),
        claim(accessModes=["ReadWriteMany"]),
        [(FORBIDDEN, "spec")],
    ),
    "a claim that is bound to a volume": (claim(), claim(volumeName="v"), []),
    "the value of a priority class": (priority(1), priority(2), [(FORBIDDEN, "value")]),
    "whether a priority class preempts": (
        priority(1),
        priority(1, preemptionPolicy="Never"),
        [(INVALID, "preemptionPolicy")],
    ),
    "the role of a binding": (
        binding(),
        binding(ref={"kind": "ClusterRole", "name": "edit"}),
        [(INVALID, "roleRef")],
    ),
    "the selector of a deployment": (
        workload("Deployment"),
        workload(
            "Deployment", selector={"matchExpressions": [{"key": "app", "operator": "Exists"}]}
        ),
        [(INVALID, "spec.selector")],
    ),
    "the replicas of a stateful set": (
        workload("StatefulSet"),
        workload("StatefulSet", replicas=5),
        [],
    ),
    "the service of a stateful set": (
        workload("StatefulSet"),
        workload("StatefulSet", serviceName="s"),
        [(FORBIDDEN, "spec")],
    ),
    "the completions of a job": (
        batch_job(completions=1),
        batch_job(completions=2),
        [(INVALID, "spec.completions")],
    ),
    "the provisioner of a storage class": (
        obj("storage.k8s.io/v1", "StorageClass", provisioner="a"),
        obj("storage.k8s.io/v1", "StorageClass", provisioner="b"),
        [(INVALID, "provisioner")],
    ),
}


@pytest.mark.parametrize("sentence", UPDATES)
def test_updates(sentence: str) -> None:
    old, new, want = UPDATES[sentence]
    assert found(new, old) == want

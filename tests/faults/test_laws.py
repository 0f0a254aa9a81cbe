"""The laws accept a correct history, and detect every violation."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tools.faults.history import Write, from_exchange, read_audit, tagged
from tools.faults.laws import LAWS, judge

Json = dict[str, Any]
History = list[Write]
A, B = tagged("hekla", "scheduler-a"), tagged("hekla", "scheduler-b")
USER, KWOK = "kubectl", "kwok"


def write(at: float, verb: str, kind: str, name: str, agent: str, **more: Any) -> Write:
    resource, _, subresource = kind.partition("/")
    given: Json = {"code": 201 if verb == "create" else 200, **more}
    return Write(at, at + 0.01, verb, resource, subresource, "ns", name, agent=agent, **given)


def pod(name: str, version: int, *, node: str = "", phase: str = "Pending") -> Json:
    requests = {"cpu": "2"}
    spec: Json = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
    if node:
        spec["nodeName"] = node
    metadata = {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-{name}",
        "resourceVersion": str(version),
        "annotations": {"scheduling.k8s.io/group-name": "gang"},
    }
    return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": phase}}


def bind(at: float, name: str, node: str, agent: str = A, code: int = 201) -> Write:
    asked = {"metadata": {"name": name, "uid": f"uid-{name}"}, "target": {"name": node}}
    return write(at, "create", "pods/binding", name, agent, asked=asked, code=code)


def ends(at: float, name: str, node: str) -> Write:
    answer = pod(name, int(at), node=node, phase="Succeeded")
    return write(at, "patch", "pods/status", name, KWOK, answer=answer)


def job(at: float, verb: str, phase: str, kind: str = "jobs/status") -> Write:
    metadata = {"name": "train", "namespace": "ns", "uid": "j1", "resourceVersion": str(int(at))}
    answer = {"kind": "Job", "metadata": metadata, "status": {"state": {"phase": phase}}}
    return write(at, verb, kind, "train", USER, answer=answer)


def lease(at: float, agent: str, holder: str) -> Write:
    answer = {
        "kind": "Lease",
        "metadata": {"name": "volcano", "resourceVersion": str(int(at))},
        "spec": {"holderIdentity": holder},
    }
    return write(at, "update", "leases", "volcano", agent, answer=answer)


def good() -> History:
    """Return a history: two nodes, a gang of two, and a change of the leader."""
    node = {"status": {"allocatable": {"cpu": "2", "pods": "10"}}}
    group = {
        "kind": "PodGroup",
        "metadata": {"name": "gang", "namespace": "ns"},
        "spec": {"minMember": 2},
    }
    return [
        write(1, "create", "nodes", "n1", USER, answer=node),
        write(2, "create", "nodes", "n2", USER, answer=node),
        lease(3, A, "a"),
        job(4, "create", "", "jobs"),
        write(5, "create", "podgroups", "gang", USER, answer=group),
        write(6, "create", "pods", "", USER, answer=pod("p1", 6)),
        write(7, "create", "pods", "", USER, answer=pod("p2", 7)),
        job(8, "update", "Pending"),
        bind(10, "p1", "n1"),
        lease(20, B, "b"),
        bind(21, "p2", "n2", B),
        bind(22, "p2", "n1", B, code=409),
        job(23, "update", "Running"),
        ends(30, "p1", "n1"),
        ends(31, "p2", "n2"),
        job(32, "update", "Completed"),
        job(33, "update", "Completed"),
    ]


def without(history: History, at: float) -> History:
    return [one for one in history if one.at != at]


def other_node(history: History) -> History:
    return [
        *history,
        write(25, "patch", "pods/status", "p1", KWOK, answer=pod("p1", 25, node="n2")),
    ]


def late_quorum(history: History) -> History:
    late = [bind(500, "p2", "n2", B), ends(501, "p2", "n2"), job(502, "update", "Completed")]
    return [*(one for one in history if one.at < 21 or one.at == 30), *late]


DOCTORED: dict[str, tuple[str, Callable[[History], History]]] = {
    "a pod is bound a second time": (
        "no_pod_is_bound_twice",
        lambda h: [*h, bind(24, "p1", "n2", B)],
    ),
    "a pod shows up on another node": ("no_pod_is_bound_twice", other_node),
    "a pod is created again": (
        "no_pod_is_made_twice",
        lambda h: [*h, write(40, "create", "pods", "", USER, answer=pod("p1", 40))],
    ),
    "half a gang is never bound": (
        "no_gang_is_left_half_bound",
        lambda h: without(without(h, 21), 31),
    ),
    "half a gang is bound too late": ("gangs_are_repaired", late_quorum),
    "two pods take the same room": (
        "no_node_is_overfull",
        lambda h: [*without(without(h, 21), 31), bind(21, "p2", "n1", B), ends(31, "p2", "n1")],
    ),
    "a pod is bound to an unknown node": (
        "no_node_is_overfull",
        lambda h: without(h, 2),
    ),
    "a job never ends": ("no_job_is_lost", lambda h: without(without(h, 32), 33)),
    "a job that ended runs again": (
        "no_job_ends_twice",
        lambda h: [*h, job(34, "update", "Running")],
    ),
    "a job that completed fails": (
        "no_job_ends_twice",
        lambda h: [*h, job(34, "update", "Failed")],
    ),
    "the old leader goes on": (
        "only_the_leader_writes",
        lambda h: [*h, bind(22.5, "p2", "n2", A, code=409)],
    ),
    "a replica writes without a leader": (
        "only_the_leader_writes",
        lambda h: without(h, 3),
    ),
}


def test_a_correct_history_obeys_every_law() -> None:
    report = judge(good())
    assert not report.broken, report
    assert report.counts["pods bound"] == 2
    assert report.counts["longest half-bound s"] == 11


@pytest.mark.parametrize("how", DOCTORED)
def test_a_falsified_history_is_rejected(how: str) -> None:
    law, doctor = DOCTORED[how]
    broken = judge(doctor(good())).broken
    assert [said for said in broken if said.startswith(f"{law}: ")], broken


def test_every_law_is_broken_by_some_history() -> None:
    assert {law for law, _ in DOCTORED.values()} == {
        *(law.__name__ for law in LAWS),
        "gangs_are_repaired",
    }


def test_a_bind_missing_from_the_log_is_inferred_from_later_responses() -> None:
    """A killed server had stored the bind; the end of the pod shows its node."""
    lost = without(good(), 21)
    assert not judge(lost).broken
    moved = [replace(w, answer=pod("p2", 31, node="n1")) if w.at == 31 else w for w in lost]
    assert not judge(moved).broken  # p1 had finished on n1 when p2 was first seen there
    early = [replace(w, at=25.0) if w.at == 31 else w for w in moved]
    assert judge(early).broken == ["no_node_is_overfull: n1 has no room for the cpu of ns/p2"]


def test_a_partial_line_of_an_audit_log_is_skipped(tmp_path: Path) -> None:
    event = {
        "stage": "ResponseComplete",
        "verb": "create",
        "userAgent": A,
        "objectRef": {"resource": "pods", "subresource": "binding", "namespace": "ns", "name": "p"},
        "responseStatus": {"code": 201},
        "requestObject": {"metadata": {"uid": "u"}, "target": {"name": "n1"}},
        "requestReceivedTimestamp": "2026-08-01T10:00:00.500000Z",
        "stageTimestamp": "2026-08-01T10:00:00.750000Z",
    }
    path = tmp_path / "audit.log"
    path.write_text(json.dumps(event) + "\n" + json.dumps(event)[:80])
    (found,) = read_audit(path)
    assert (found.replica, found.subresource, found.code) == ("scheduler-a", "binding", 201)
    assert found.done - found.at == 0.25


def test_the_history_of_a_proxy_equals_that_of_the_audit_log() -> None:
    path = "/apis/batch.volcano.sh/v1alpha1/namespaces/ns/jobs/train/status"
    found = from_exchange(1.0, 2.0, "PUT", path, A, b"{}", 200, b'{"kind": "Job"}')
    assert (found.verb, found.resource, found.subresource) == ("update", "jobs", "status")
    assert (found.namespace, found.name, found.answer) == ("ns", "train", {"kind": "Job"})
    made = from_exchange(
        1.0, 2.0, "POST", "/api/v1/nodes", USER, b"\x00", 201, b'{"metadata": {"name": "n1"}}'
    )
    assert (made.resource, made.namespace, made.name, made.asked) == ("nodes", "", "n1", {})
    every = from_exchange(1.0, 2.0, "DELETE", "/api/v1/namespaces/ns/pods", USER, b"", 200, b"")
    assert (every.verb, every.resource, every.name) == ("deletecollection", "pods", "")

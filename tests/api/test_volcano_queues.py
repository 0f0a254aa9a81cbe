"""Admission of Queues, PodGroups, flows, cron jobs and HyperNodes: defaults and validation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from hekla.api import volcano, wellknown
from hekla.units.objects import Object
from tests.api.test_volcano_jobs import Cluster, job, queue, task


def problems(one: Object, old: Object | None = None, view: Cluster | None = None) -> list[str]:
    view = view or Cluster()
    if old is None:
        volcano.default(one, view)
    return [str(error) for error in volcano.check("update" if old else "create", one, old, view)]


def obj(api_version: str, kind: str, name: str = "x", **spec: Any) -> Object:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def test_minimal_queue_gets_defaults() -> None:
    one = queue("q")
    volcano.default(one, Cluster())
    assert one["spec"] == {"reclaimable": True, "weight": 1}


def test_hierarchy_without_root_gets_root() -> None:
    one = queue("q")
    one["metadata"]["annotations"] = {
        wellknown.HIERARCHY: "a/b",
        wellknown.HIERARCHY_WEIGHTS: "2/3",
    }
    volcano.default(one, Cluster())
    assert one["metadata"]["annotations"] == {
        wellknown.HIERARCHY: "root/a/b",
        wellknown.HIERARCHY_WEIGHTS: "1/2/3",
    }


def cpu(amount: str) -> Object:
    return {"cpu": amount}


TREE = (
    queue("dept", parent="root", capability=cpu("10"), deserved=cpu("8"),
          guarantee={"resource": cpu("4")}),
    queue("team", parent="dept", capability=cpu("6"), deserved=cpu("5"),
          guarantee={"resource": cpu("3")}),
)  # fmt: skip

REFUSED: dict[str, tuple[Object, str]] = {
    "a negative amount": (queue("q", capability=cpu("-1")), "greater than or equal to 0"),
    "no amount at all": (queue("q", deserved=cpu("lots")), "spec.deserved[cpu]"),
    "a guarantee above what is deserved": (
        queue("q", deserved=cpu("1"), guarantee={"resource": cpu("2")}),
        "at least the guarantee of 2",
    ),
    "deserving more than it can have": (
        queue("q", deserved=cpu("3"), capability=cpu("2")),
        "must not exceed the capability of 2",
    ),
    "a parent that does not exist": (queue("q", parent="nope"), "no such queue; create it first"),
    "itself as parent": (queue("q", parent="q"), "cannot be its own parent"),
    "more capability than an ancestor": (
        queue("q", parent="dept", capability=cpu("11")),
        "exceeds 10 of queue 'dept' above",
    ),
    "siblings that add up to more than the parent has": (
        queue("q", parent="dept", guarantee={"resource": cpu("2")}),
        "add up to 5, and it has 4",
    ),
    "weights that do not match the hierarchy": (
        {
            **queue("q"),
            "metadata": {
                "name": "q",
                "annotations": {
                    wellknown.HIERARCHY: "root/a",
                    wellknown.HIERARCHY_WEIGHTS: "1/2/3",
                },
            },
        },
        "as many parts",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_invalid_queue_is_rejected(what: str) -> None:
    one, want = REFUSED[what]
    found = problems(one, view=Cluster(*TREE))
    assert any(want in problem for problem in found), found


def test_queue_with_guarantee_and_without_deserved_is_accepted() -> None:
    assert problems(queue("q", capability=cpu("64"), guarantee={"resource": cpu("16")})) == []


def test_cycle_of_parents_is_rejected() -> None:
    view = Cluster(queue("a", parent="root"), queue("b", parent="a"), queue("c", parent="b"))
    moved = queue("a", parent="c")
    (problem,) = problems(moved, old=queue("a", parent="root"), view=view)
    assert "a -> c -> b -> a" in problem


def test_queue_depth_is_limited_to_five() -> None:
    line = [queue("q1", parent="root")]
    line += [queue(f"q{n}", parent=f"q{n - 1}") for n in range(2, 6)]
    assert problems(queue("last", parent="q4"), view=Cluster(*line)) == []
    (problem,) = problems(queue("deep", parent="q5"), view=Cluster(*line))
    assert "5 deep at most" in problem


def test_a_queue_that_runs_pods_cannot_become_a_parent() -> None:
    busy = queue("busy", parent="root")
    busy["status"]["allocated"] = {"pods": "3"}
    (problem,) = problems(queue("q", parent="busy"), view=Cluster(busy))
    assert "runs pods itself" in problem


def test_a_parent_cannot_shrink_below_its_children() -> None:
    dept, team = TREE
    smaller = queue("dept", parent="root", capability=cpu("5"), deserved=cpu("8"))
    found = problems(smaller, old=dept, view=Cluster(dept, team))
    assert any("queue 'team' below has 6" in problem for problem in found), found


def test_a_closing_queue_can_still_be_edited() -> None:
    old, new = queue("q", "Closing"), queue("q", "Closing", weight=5)
    assert problems(new, old=old) == []


@pytest.mark.parametrize(
    ("name", "want"),
    [("default", "built in"), ("root", "built in"), ("dept", "child queues: team")],
)
def test_some_queues_cannot_be_deleted(name: str, want: str) -> None:
    view = Cluster(*TREE)
    found = view.queue(name)
    assert found is not None
    (problem,) = volcano.check("delete", found, found, view)
    assert want in str(problem)
    leaf = view.queue("team")
    assert leaf is not None
    assert list(volcano.check("delete", leaf, leaf, view)) == []


class Busy(Cluster):
    """A queue `ml` with workloads; the namespace `ending` is being deleted."""

    def __init__(self, *workloads: Object) -> None:
        super().__init__(queue("ml"))
        self._workloads = workloads

    def workloads(self, queue: str) -> Iterable[Object]:
        return self._workloads

    def namespace(self, name: str) -> Object | None:
        return {"metadata": {"deletionTimestamp": "now"}} if name == "ending" else None


def workload(kind: str, name: str, phase: str = "", **metadata: Any) -> Object:
    status = {"state": {"phase": phase}} if kind == "Job" else {"phase": phase}
    names = {"name": name, "namespace": "a", **metadata}
    return {"kind": kind, "metadata": names, "status": status}


BY_JOB = {"ownerReferences": [{"apiVersion": wellknown.BATCH_API, "kind": "Job", "name": "x"}]}
IN_USE: dict[str, tuple[tuple[Object, ...], str]] = {
    "a running job": (
        (workload("Job", "x", "Running"),),
        "queue ml can not be deleted because it has 1 unfinished job (1 running): a/x; close it",
    ),
    "a job, counted without its group": (
        (workload("Job", "x"), workload("PodGroup", "x-1", "Inqueue", **BY_JOB)),
        "it has 1 unfinished job (1 pending): a/x;",
    ),
    "groups of others": (
        tuple(workload("PodGroup", f"g{n}", "Running") for n in range(5)),
        "it has 5 unfinished jobs (5 running): a/g0, a/g1, a/g2 and 2 more;",
    ),
    "an aborted job, which can be resumed": ((workload("Job", "x", "Aborted"),), "(1 aborted)"),
}
UNUSED = {
    "no job": (),
    "finished jobs": tuple(workload("Job", p, p) for p in ("Completed", "Failed", "Terminated")),
    "a completed group": (workload("PodGroup", "g", "Completed"),),
    "a job that is being deleted": (workload("Job", "x", "Running", deletionTimestamp="now"),),
    "jobs of a namespace that is": (workload("Job", "x", "Running", namespace="ending"),),
}


@pytest.mark.parametrize(("workloads", "want"), IN_USE.values(), ids=IN_USE)
@pytest.mark.parametrize("state", ["Open", "Closing", "Closed"])
def test_queue_with_unfinished_jobs_cannot_be_deleted(
    workloads: tuple[Object, ...], want: str, state: str
) -> None:
    one = queue("ml", state)
    (problem,) = volcano.check("delete", one, one, Busy(*workloads))
    assert want in str(problem)


@pytest.mark.parametrize("workloads", UNUSED.values(), ids=UNUSED)
@pytest.mark.parametrize("state", ["Open", "Closed"])
def test_queue_without_unfinished_jobs_can_be_deleted(
    workloads: tuple[Object, ...], state: str
) -> None:
    one = queue("ml", state)
    assert list(volcano.check("delete", one, one, Busy(*workloads))) == []


def group(**spec: Any) -> Object:
    return obj(wellknown.SCHEDULING_API, "PodGroup", **spec)


def test_a_group_cannot_join_a_closed_queue_but_a_restarting_job_can() -> None:
    view = Cluster(queue("shut", "Closing"))
    (problem,) = problems(group(queue="shut"), view=view)
    assert "queue 'shut' is Closing" in problem
    owned = group(queue="shut")
    owned["metadata"]["ownerReferences"] = [
        {"apiVersion": wellknown.BATCH_API, "kind": "Job", "name": "j", "controller": True}
    ]
    assert problems(owned, view=view) == []


def test_a_namespace_names_the_queue_of_its_groups() -> None:
    class Named(Cluster):
        def namespace(self, name: str) -> Object | None:
            return {"metadata": {"annotations": {wellknown.POD_QUEUE_NAME: "team"}}}

    one = group()
    volcano.default(one, Named(queue("team")))
    assert one["spec"]["queue"] == "team"


BUDGETS: dict[str, tuple[dict[str, str], bool]] = {
    "a count": ({wellknown.JDB_MIN_AVAILABLE: "2"}, True),
    "a percentage": ({wellknown.JDB_MAX_UNAVAILABLE: "50%"}, True),
    "zero": ({wellknown.JDB_MIN_AVAILABLE: "0"}, False),
    "all of them": ({wellknown.JDB_MIN_AVAILABLE: "100%"}, False),
    "words": ({wellknown.JDB_MIN_AVAILABLE: "some"}, False),
    "both": ({wellknown.JDB_MIN_AVAILABLE: "1", wellknown.JDB_MAX_UNAVAILABLE: "1"}, False),
}


@pytest.mark.parametrize("what", BUDGETS)
def test_disruption_budget_annotations_are_validated(what: str) -> None:
    annotations, fine = BUDGETS[what]
    pod = obj("v1", "Pod", schedulerName="volcano")
    pod["metadata"]["annotations"] = annotations
    assert (problems(pod) == []) is fine
    pod["spec"]["schedulerName"] = "default-scheduler"
    assert problems(pod) == [], "pods of other schedulers are none of our business"


def test_flows_must_be_known_unique_and_acyclic() -> None:
    def flow(*flows: tuple[str, list[str]]) -> Object:
        made = [{"name": name, "dependsOn": {"targets": targets}} for name, targets in flows]
        return obj(wellknown.FLOW_API, "JobFlow", flows=made)

    assert problems(flow(("a", []), ("b", ["a"]))) == []
    assert 'Not found: "x"' in problems(flow(("a", ["x"])))[0]
    assert "cycle" in problems(flow(("a", ["b"]), ("b", ["a"])))[0]
    assert "Duplicate" in problems(flow(("a", []), ("a", [])))[0]


def cron(schedule: str = "0 3 * * *", name: str = "nightly", **spec: Any) -> Object:
    template = {"spec": {"tasks": [task()]}}
    return obj(
        wellknown.BATCH_API, "CronJob", name, schedule=schedule, jobTemplate=template, **spec
    )


CRONS: dict[str, tuple[Object, str | None]] = {
    "five fields": (cron(), None),
    "a name": (cron("@daily"), None),
    "an interval": (cron("@every 90m"), None),
    "a zone": (cron(timeZone="Europe/Oslo"), None),
    "six fields": (cron("0 0 3 * * *"), "expected five fields"),
    "minute 61": (cron("61 * * * *"), "not a schedule"),
    "a zone inside": (cron("TZ=UTC 0 3 * * *"), "spec.timeZone"),
    "no such zone": (cron(timeZone="Europe/Atlantis"), "no such time zone"),
    "the local zone": (cron(timeZone="Local"), "name of a time zone"),
    "a path": (cron(timeZone="../etc"), "cannot be in the name"),
    "a long name": (cron(name="x" * 53), "longer than 52"),
    "a job that would be refused": (
        {**cron(), "spec": {"schedule": "@daily", "jobTemplate": {"spec": {"tasks": []}}}},
        "spec.jobTemplate.spec.tasks",
    ),
}


@pytest.mark.parametrize("what", CRONS)
def test_cron_job_validation(what: str) -> None:
    one, want = CRONS[what]
    found = problems(one)
    assert (not found) if want is None else any(want in problem for problem in found), found


def test_a_job_template_is_checked_as_a_job() -> None:
    template = {**job(task(minAvailable=9)), "kind": "JobTemplate"}
    template["apiVersion"] = wellknown.FLOW_API
    assert "exceeds the task's 2 replicas" in problems(template)[0]


def test_a_hypernode_member_is_selected_in_exactly_one_way() -> None:
    def hypernode(**selector: Any) -> Object:
        members = [{"type": "Node", "selector": selector}]
        return obj(wellknown.TOPOLOGY_API, "HyperNode", tier=1, members=members)

    assert problems(hypernode(exactMatch={"name": "n1"})) == []
    both = hypernode(exactMatch={"name": "n1"}, regexMatch={"pattern": "n.*"})
    assert "exactly one of" in problems(both)[0]
    assert "got none" in problems(hypernode())[0]
    assert "does not compile" in problems(hypernode(regexMatch={"pattern": "("}))[0]

"""Invariants of deployments, sets and jobs: pure decisions, no server."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hekla.controllers.workloads import indexes, rollout
from hekla.controllers.workloads.cronjob import KUBERNETES
from hekla.controllers.workloads.effects import Create, Delete, Patch, SetStatus
from hekla.controllers.workloads.job import next_step as job_step
from hekla.controllers.workloads.job_pods import backoff_s
from hekla.controllers.workloads.job_tracking import FINALIZER
from hekla.controllers.workloads.job_view import JobView
from hekla.controllers.workloads.replicaset import ReplicaSetView
from hekla.controllers.workloads.replicaset import next_step as set_step
from hekla.units.objects import Object
from hekla.units.patches import merge_patch
from hekla.units.timestamps import format_time

from .builders import NOW
from .workloads import template

numbers = st.integers(0, 12)
shares = st.one_of(st.integers(0, 12), st.integers(0, 100).map(lambda p: f"{p}%"))


def deployment(replicas: int, surge: Any = "25%", unavailable: Any = "25%") -> Object:
    strategy = {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}
    return {"metadata": {"name": "d"}, "spec": {"replicas": replicas, "strategy": strategy}}


def replica_set(name: str, replicas: int, available: int, age: int = 0) -> Object:
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "creationTimestamp": format_time(NOW - age),
        },
        "spec": {"replicas": replicas},
        "status": {"availableReplicas": min(available, replicas)},
    }


sets = st.tuples(numbers, numbers)


@given(numbers, shares, shares, sets, st.lists(sets, max_size=3))
def test_rollout_stays_within_max_surge_and_max_unavailable(
    replicas: int, surge: Any, unavailable: Any, new: Any, old: Any
) -> None:
    of = deployment(replicas, surge, unavailable)
    newest = replica_set("new", *new)
    others = [replica_set(f"old-{n}", size, up, n + 1) for n, (size, up) in enumerate(old)]
    more, fewer = rollout.surge_and_unavailable(of)
    sizes = rollout.rolling_update(of, newest, others)
    before = {rollout.name_of(e): rollout.size(e) for e in [newest, *others]}
    after = {**before, **sizes}
    assert all(each >= 0 for each in after.values())
    if sum(after.values()) > sum(before.values()):
        assert sum(after.values()) <= replicas + more
    # Old sets keep the needed number of available pods, and lose unavailable ones first.
    working = sum(map(rollout.available, [newest, *others]))
    left = sum(
        min(after[rollout.name_of(e)], rollout.available(e)) for e in others
    ) + rollout.available(newest)
    if after["new"] >= before["new"]:
        assert left >= min(working, replicas - fewer)


@given(numbers, shares, shares, st.lists(sets, max_size=2))
def test_rollout_completes_if_all_pods_become_ready(
    replicas: int, surge: Any, unavailable: Any, old: Any
) -> None:
    of = deployment(replicas, surge, unavailable)
    every = [replica_set("new", 0, 0)] + [
        replica_set(f"old-{n}", size, size, age=n + 1) for n, (size, _) in enumerate(old)
    ]
    for _ in range(100):
        sizes = rollout.rolling_update(of, every[0], every[1:])
        if not sizes:
            break
        for each in every:
            each["spec"]["replicas"] = sizes.get(rollout.name_of(each), rollout.size(each))
            each["status"]["availableReplicas"] = each["spec"]["replicas"]
    assert [rollout.size(each) for each in every] == [replicas] + [0] * len(old)


@given(numbers, numbers, shares, st.lists(numbers.filter(bool), min_size=2, max_size=3))
def test_scaling_during_a_rollout_stays_within_max_surge(
    before: int, after: int, surge: Any, sizes: list[int]
) -> None:
    of = deployment(after, surge, 1)
    every = [replica_set(f"s{n}", size, size, age=n) for n, size in enumerate(sizes)]
    wanted = rollout.rescale(of, every[0], every[1:])
    total = sum(wanted.get(rollout.name_of(e), rollout.size(e)) for e in every)
    allowed = after + rollout.surge_and_unavailable(of)[0] if after else 0
    assert total == allowed
    assert all(each >= 0 for each in wanted.values())


@given(st.sets(st.integers(0, 40)))
def test_indexes_round_trip(given: set[int]) -> None:
    assert indexes.parse(indexes.write(given), 41) == given


def test_indexes_are_formatted_as_upstream() -> None:
    assert indexes.write({0, 1, 2, 5, 7, 8}) == "0-2,5,7,8"
    assert indexes.parse("0-9999999999", 3) == {0, 1, 2}


def pod(name: str, phase: str, **more: Any) -> Object:
    ended = {"terminated": {"exitCode": 1, "finishedAt": format_time(NOW)}}
    metadata: Object = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        "labels": {"app": "web"},
        "finalizers": [FINALIZER],
    }
    if more.pop("deleting", False):
        metadata["deletionTimestamp"] = format_time(NOW)
    statuses = [{"state": ended}] if phase in ("Succeeded", "Failed") else []
    status = {"phase": phase, "containerStatuses": statuses}
    return {"metadata": metadata, "spec": {"containers": [], **more}, "status": status}


phases = st.sampled_from(["Pending", "Running", "Succeeded", "Failed"])
crowds = st.lists(st.tuples(phases, st.booleans()), max_size=8)


def crowd(given: Any) -> list[Object]:
    return [pod(f"p{n}", phase, deleting=gone) for n, (phase, gone) in enumerate(given)]


@given(numbers, crowds)
def test_replica_set_creates_or_deletes_exactly_the_difference(replicas: int, given: Any) -> None:
    from hekla.controllers.workloads.pods import is_active, label_selector

    selector = {"matchLabels": {"app": "web"}}
    owner: Object = {
        "metadata": {"name": "web", "namespace": "default", "uid": "u", "generation": 1},
        "spec": {"replicas": replicas, "selector": selector, "template": template()},
    }
    pods = crowd(given)
    effects = set_step(ReplicaSetView(owner, NOW, pods, selector=label_selector(selector)))
    active = sum(map(is_active, pods))
    made = sum(isinstance(each, Create) for each in effects)
    gone = sum(isinstance(each, Delete) for each in effects)
    assert active + made - gone == replicas
    assert not (made and gone)


def job(**spec: Any) -> Object:
    return {
        "metadata": {"name": "work", "namespace": "default", "uid": "u", "resourceVersion": "1"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": template("web", "Never"),
            "parallelism": 2,
            "completions": 4,
            "backoffLimit": 6,
            **spec,
        },
        "status": {},
    }


@given(st.integers(0, 4), st.integers(1, 6), crowds)
def test_job_counts_every_pod_once_and_never_exceeds_its_parallelism(
    parallelism: int, completions: int, given: Any
) -> None:
    """Reconcile a job and apply the effects until nothing changes."""
    of = job(parallelism=parallelism, completions=completions)
    pods = crowd(given)
    succeeded = sum(phase == "Succeeded" for phase, _ in given)
    for _ in range(30):
        effects = job_step(JobView(of, NOW + 10_000, pods))
        for effect in effects:
            if isinstance(effect, SetStatus):
                of = {**of, "status": merge_patch(of["status"], effect.patch)}
            elif isinstance(effect, Patch):
                kept = [e for e in pods if e is not effect.obj]
                free = merge_patch(effect.obj, effect.patch)
                gone = "deletionTimestamp" in free["metadata"]
                pods = kept if gone else [*kept, free]
            elif isinstance(effect, Delete):
                pods = [e for e in pods if e["metadata"]["uid"] != effect.obj["metadata"]["uid"]]
            elif isinstance(effect, Create):
                fresh = pod(f"n{len(pods)}-{len(str(of['status']))}", "Pending")
                pods.append(fresh)
        active = [e for e in pods if e["status"]["phase"] in ("Pending", "Running")]
        if not effects:
            break
    assert not of["status"].get("uncountedTerminatedPods")
    assert of["status"].get("succeeded", 0) == succeeded
    assert len(active) <= max(parallelism, 0)


def test_the_next_pod_waits_longer_after_each_failure_in_a_row() -> None:
    failed = [pod(f"f{n}", "Failed") for n in range(3)]
    assert backoff_s(failed[:1], NOW) == 10.0
    assert backoff_s(failed, NOW) == 40.0
    assert backoff_s(failed, NOW + 41) == 0.0
    assert backoff_s([], NOW) == 0.0


def test_kubernetes_cron_job_reads_the_outcome_of_its_jobs() -> None:
    done = job()
    assert KUBERNETES.outcome(done) == ""
    done["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    assert KUBERNETES.outcome(done) == "succeeded"

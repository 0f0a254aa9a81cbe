"""Numbers and expressions of tenants that would make a component work for ever are refused."""

from __future__ import annotations

from typing import Any

import pytest
from tools.fuzz.slow import EXPONENT, dependent, job, review_cost

from hekla.admission import reviews
from hekla.api.rules.definitions import structural
from hekla.api.volcano import MAX_ERRORS, check
from hekla.api.volcano.jobs import MAX_REPLICAS, MAX_TASKS
from hekla.apiserver.cel import functions
from hekla.apiserver.schema.structural import StructuralSchema
from hekla.controllers.hypernode.discovery import _matching
from hekla.controllers.job.plugins.plugin import PodContext
from hekla.controllers.job.plugins.svc import Svc, hosts
from hekla.scheduler.state.topology import Patterns
from hekla.units.objects import Object
from hekla.units.patterns import PatternError, compile_pattern

INT32 = 2**31 - 1


class NoQueues:
    """A cluster with the default queue only."""

    scheduler_names = ("volcano",)
    max_pods_per_job = MAX_REPLICAS
    job_plugins = frozenset({"svc", "ssh"})

    def queue(self, name: str) -> Object:
        return {"metadata": {"name": name}, "status": {"state": "Open"}}

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: []


def problems(obj: Object, old: Object | None = None, limit: int = MAX_REPLICAS) -> list[str]:
    view: Any = NoQueues()
    view.max_pods_per_job = limit
    return [str(each) for each in check("update" if old else "create", obj, old, view)]


def test_job_with_two_billion_replicas_is_refused() -> None:
    found = problems(job([{"name": "a", "replicas": INT32}]))
    assert any("more than 100000 replicas" in each for each in found)


def test_sum_over_tasks_is_limited() -> None:
    tasks = [{"name": name, "replicas": MAX_REPLICAS // 2 + 1} for name in ("a", "b")]
    assert any("more than 100000 replicas in all" in each for each in problems(job(tasks)))
    assert problems(job(tasks[:1])) == []


def test_scaling_a_job_beyond_the_limit_is_refused() -> None:
    old = job([{"name": "a", "replicas": 1}])
    new = job([{"name": "a", "replicas": INT32}])
    assert any("more than 100000 replicas" in each for each in problems(new, old))


def test_operator_sets_the_limit_and_larger_jobs_may_shrink() -> None:
    jobs = {n: job([{"name": "a", "replicas": n}]) for n in (10_000, 10_001, 11_000, 12_000)}
    assert problems(jobs[10_000], limit=10_000) == []
    (refused,) = problems(jobs[10_001], limit=10_000)
    assert "more than 10000 replicas in all, the most pods that a job may have here" in refused
    assert problems(jobs[11_000], jobs[12_000], limit=10_000) == []
    assert problems(jobs[12_000], jobs[11_000], limit=10_000) != []


@pytest.mark.parametrize("plugin", ["svc", "ssh"])
def test_hosts_that_fit_no_object_are_refused_before_they_are_listed(plugin: str) -> None:
    large = job([{"name": "a", "replicas": 90_000}], plugins={plugin: []})
    assert any("lists every host" in each for each in problems(large))
    assert problems(job([{"name": "a", "replicas": 4_000}], plugins={plugin: []})) == []


def test_pods_of_a_large_job_do_not_list_all_hosts_each(monkeypatch: Any) -> None:
    large = job([{"name": "a", "replicas": 1_000}], plugins={"svc": []})
    wanted = {key for key in hosts(large) if not key.endswith(".host")}
    monkeypatch.setattr("hekla.controllers.job.plugins.svc.addresses", None)
    pod = {"metadata": {"name": "j-a-0"}, "spec": {"containers": [{"name": "c"}]}}
    Svc().on_pod(pod, PodContext(large, large["spec"]["tasks"][0], 0))
    assert {each["name"] for each in pod["spec"]["containers"][0]["env"]} == wanted  # type: ignore[index]


def test_job_with_too_many_tasks_is_refused_without_a_look_at_each() -> None:
    found = problems(job([{"name": f"t{i}"} for i in range(MAX_TASKS + 1)]))
    assert found == [
        f"spec.tasks: Too many: {MAX_TASKS + 1}: must have at most 1000; split the object"
    ]


def test_review_of_100_000_dependencies_lists_few_errors() -> None:
    tasks = dependent(50)
    tasks[0]["dependsOn"] = {"name": [f"missing-{i}" for i in range(100_000)]}
    request = {"uid": "u", "operation": "CREATE", "object": job(tasks)}
    view: Any = NoQueues()
    answer = reviews.validate(request, view)["response"]
    assert not answer["allowed"]
    assert len(answer["status"]["details"]["causes"]) == MAX_ERRORS


BACKTRACKING = "(a|a)*b"
TEXT = "a" * 50_000


def test_backtracking_expressions_end_at_once() -> None:
    """With Python's `re` each of these runs for longer than anybody waits."""
    assert not compile_pattern(BACKTRACKING).found_in(TEXT)
    assert Patterns().matching(BACKTRACKING, {TEXT: 0}) == []
    assert _matching({"regexMatch": {"pattern": BACKTRACKING}}, {TEXT: {}}) == set()
    assert functions._find(TEXT, BACKTRACKING) == ""
    assert functions._find_all("xaby", BACKTRACKING) == ["ab"]
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": BACKTRACKING}}}
    assert StructuralSchema(schema, {}, custom=True).check({"a": TEXT}).errors


@pytest.mark.parametrize("pattern", ["(?=a)", r"(a)\1", "((a{100}){100}){100}", "x" * 5_000])
def test_expressions_that_are_not_linear_are_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        compile_pattern(pattern)
    member = {"type": "Node", "selector": {"regexMatch": {"pattern": pattern}}}
    node = {"kind": "HyperNode", "metadata": {"name": "h"}, "spec": {"members": [member]}}
    node["apiVersion"] = "topology.volcano.sh/v1alpha1"
    assert any("does not compile" in each for each in problems(node))


def test_definition_with_a_pattern_that_is_not_linear_is_refused() -> None:
    found = list(structural("schema", {"type": "string", "pattern": "(?=a)"}))
    assert [each.field for each in found] == ["schema.pattern"]


def test_work_of_a_review_grows_with_its_dependencies() -> None:
    view: Any = NoQueues()
    small, large = review_cost(view, 10_000), review_cost(view, 40_000)
    assert large < max(small, 0.005) * 4**EXPONENT

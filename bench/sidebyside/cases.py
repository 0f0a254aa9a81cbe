"""The loads: gangs, pods per gang, nodes, and the pattern of arrival.

A gang is a PodGroup with its pods, or a Job from which controllers create them. Every pod requests
1 CPU and 1 GiB, every node has 32 CPUs and 256 GiB, as in Volcano's own benchmark.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal
from uuid import NAMESPACE_URL, uuid5

from hekla.controllers.job.pods import PodMaker

Json = dict[str, Any]
How = Literal["burst", "one-by-one", "backlog", "churn"]
Displacing = Literal["", "preempt", "reclaim"]

NAMESPACE = "bench"
NODE_CPU, NODE_MEMORY_GIB, NODE_PODS = 32, 256, 110
JOB_LABEL = "volcano.sh/job-name"
BATCH_JOB_LABEL = "batch.kubernetes.io/job-name"
LOW, HIGH = "bench-low", "bench-high"
"""Priority classes."""
LENDER, BORROWER = "lender", "borrower"
"""Queues: the borrower uses all until the lender reclaims its half."""
FILLER = "f"
TASK = "worker"
"""The only task of each Job."""


@dataclass(frozen=True)
class Case:
    """One load."""

    name: str
    gangs: int
    size: int
    nodes: int
    how: How = "burst"
    """burst: as fast as the server accepts them; backlog: before the scheduler starts; one-by-one:
    the next when the last is bound; churn: at a rate, each deleted some time after it was bound."""
    as_jobs: bool = False
    is_gang: bool = True
    """Whether minMember is the size of the gang; otherwise it is 1."""
    pods_per_s: float = 0.0
    lasts_s: float = 0.0
    displaces: Displacing = ""
    """The action that evicts for the load; the cluster is full before it."""
    prefix: str = "g"
    priority: str = ""
    queue: str = "default"

    @property
    def pods(self) -> int:
        return self.gangs * self.size

    def gang_names(self) -> Iterator[str]:
        return (f"{self.prefix}{number:05}" for number in range(self.gangs))

    def pod_name(self, gang: int, member: int) -> str:
        name = f"{self.prefix}{gang:05}"
        return f"{name}-{TASK}-{member}" if self.as_jobs else f"{name}-{member}"

    def filler(self) -> Case:
        """Return the pods that fill the cluster before the load; each can be evicted alone."""
        return Case(
            f"fill-{self.name}", self.nodes, NODE_CPU, self.nodes, is_gang=False, prefix=FILLER,
            priority=LOW if self.displaces == "preempt" else "",
            queue=BORROWER if self.displaces == "reclaim" else "default",
        )  # fmt: skip

    def title(self) -> str:
        what = "Jobs" if self.as_jobs else "gangs" if self.is_gang else "groups"
        how = {"burst": "", "one-by-one": ", one by one", "backlog": ", scheduler starts late"}
        rate = f", {self.pods_per_s:g} pods/s for {self.lasts_s:g} s each"
        by = {"": "", "preempt": " that preempt", "reclaim": " that reclaim"}[self.displaces]
        return (
            f"{self.gangs:,} {what} × {self.size:,}{by} on {self.nodes:,} nodes"
            f"{how.get(self.how, rate)}"
        )


def _shapes(*shapes: tuple[int, int]) -> list[Case]:
    return [
        Case(f"{gangs}x{size}@1000{suffix}", gangs, size, 1000, is_gang=is_gang)
        for (gangs, size), (suffix, is_gang) in itertools.product(
            shapes, (("", True), ("-loose", False))
        )
    ]


CASES = {
    case.name: case
    for case in (
        Case("10x100@100", 10, 100, 100),
        Case("10x100@1000", 10, 100, 1000),
        Case("100x100@1000", 100, 100, 1000),
        Case("50x100@5000", 50, 100, 5000),
        Case("1x5000@1000", 1, 5000, 1000),
        *_shapes((10000, 1), (500, 20), (20, 500), (1, 10000)),
        Case("jobs-10x100@1000", 10, 100, 1000, as_jobs=True),
        Case("jobs-100x100@1000", 100, 100, 1000, as_jobs=True),
        Case("backlog-50x100@1000", 50, 100, 1000, how="backlog"),
        Case("churn@1000", 1500, 10, 1000, how="churn", pods_per_s=50, lasts_s=30),
        Case("single@1000", 60, 1, 1000, how="one-by-one"),
        Case("preempt-10x100@100", 10, 100, 100, displaces="preempt", priority=HIGH),
        Case("reclaim-10x100@100", 10, 100, 100, displaces="reclaim", queue=LENDER),
    )
}
_ADHOC = re.compile(r"(?P<jobs>jobs-)?(?P<gangs>\d+)x(?P<size>\d+)@(?P<nodes>\d+)")


def find(name: str) -> Case:
    """Return a case of the table, or any `GANGSxSIZE@NODES` (with prefix `jobs-`: as Jobs)."""
    if name in CASES:
        return CASES[name]
    found = _ADHOC.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} is no case; there are {', '.join(CASES)}, and 4x10@20")
    gangs, size, nodes = (int(found[key]) for key in ("gangs", "size", "nodes"))
    if min(gangs, size, nodes) < 1:
        raise ValueError(f"{name!r} has nothing to do: all three numbers are at least 1")
    return Case(name, gangs, size, nodes, as_jobs=bool(found["jobs"]))


# --- the objects ----------------------------------------------------------------------------------


def pods(case: Case, gang: str, scheduler: str) -> Iterator[Json]:
    """Return the members, not yet assigned to a gang."""
    priority = {"priorityClassName": case.priority} if case.priority else {}
    for number in range(case.size):
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{gang}-{number}",
                "namespace": NAMESPACE,
                "labels": {"gang": gang},
            },
            "spec": {**pod_spec(), **priority, "schedulerName": scheduler},
        }


def job(case: Case, name: str, scheduler: str) -> Json:
    least = case.size if case.is_gang else 1
    task = {
        "name": TASK,
        "replicas": case.size,
        "minAvailable": least,
        "maxRetry": 3,
        "template": {"spec": pod_spec()},
    }
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE},
        # Defaults are written out: no webhooks are measured.
        "spec": {
            "minAvailable": least,
            "schedulerName": scheduler,
            "queue": "default",
            "maxRetry": 3,
            "tasks": [task],
        },
    }


def pods_of_job(case: Case, name: str, scheduler: str) -> Iterator[Json]:
    """Return the pods as controllers create them from a Job, with all labels and annotations."""
    body = job(case, name, scheduler)
    body["metadata"]["uid"] = str(uuid5(NAMESPACE_URL, name))
    maker = PodMaker(body)
    (task,) = body["spec"]["tasks"]
    for number in range(case.size):
        yield maker.pod(task, number)


def pod_spec() -> Json:
    amounts = {"cpu": "1", "memory": "1Gi"}
    container = {
        "name": "main",
        "image": "registry.example/train:1",
        "resources": {"requests": amounts, "limits": amounts},
    }
    return {"restartPolicy": "Never", "containers": [container]}

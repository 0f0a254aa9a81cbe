"""Crash consistency of Kubernetes' own workloads.

As `test_crash_consistency`, with lifecycles of these kinds. Names of pods are random, so their
roles are compared; and no pod may be created more often than without a crash.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from hekla.kube.resources import (
    BATCH_JOBS,
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    ENDPOINTS,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    REPLICA_SETS,
    SERVICES,
    STATEFUL_SETS,
)
from hekla.units.objects import Object

from .cluster import Cluster, running_cluster
from .workloads import EVERY, batch_job, keep_ready, make_ready, template, workload

Life = Callable[[Cluster], Awaitable[None]]
MAX_WRITES = 240
INDEX = "batch.kubernetes.io/job-completion-index"


async def make(cluster: Cluster, kind: Any, body: Object) -> None:
    await cluster.client.create(kind, body, namespace=cluster.namespace)


async def change(cluster: Cluster, kind: Any, name: str, **spec: Any) -> None:
    await cluster.client.patch(kind, name, {"spec": spec}, namespace=cluster.namespace)


async def an_update_and_its_undoing(cluster: Cluster) -> None:
    service = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
    await make(cluster, SERVICES, {"metadata": {"name": "web"}, "spec": service})
    await make(cluster, DEPLOYMENTS, workload("web", 2))
    await cluster.has_pods(2)
    await keep_ready(cluster)
    for version in ("2", None):
        given = template("web", **({"A": version} if version else {}))
        body = [{"op": "replace", "path": "/spec/template", "value": given}]
        await cluster.client.patch(
            DEPLOYMENTS, "web", body, kind="json", namespace=cluster.namespace
        )
        await keep_ready(cluster)
        await _rolled_out(cluster, "2" if version else "3")
    await change(cluster, DEPLOYMENTS, "web", replicas=1)
    await cluster.has_pods(1)

    async def seen() -> bool:
        found = await cluster.client.find(ENDPOINTS, "web", namespace=cluster.namespace)
        subsets = (found or {}).get("subsets") or [{}]
        return len(subsets[0].get("addresses") or ()) == 1

    await cluster.until(seen, "one address")


async def _rolled_out(cluster: Cluster, revision: str) -> None:
    async def done() -> bool:
        await make_ready(cluster)
        found = await cluster.client.get(DEPLOYMENTS, "web", namespace=cluster.namespace)
        message = found["metadata"]["annotations"].get("deployment.kubernetes.io/revision")
        status = found.get("status") or {}
        counts = {status.get(name) for name in ("replicas", "updatedReplicas", "availableReplicas")}
        return message == revision and counts == {2}

    await cluster.until(done, f"revision {revision}")
    await cluster.settle()


async def an_ordered_set(cluster: Cluster) -> None:
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    body = workload("db", 2, serviceName="db", volumeClaimTemplates=[claim])
    await make(cluster, STATEFUL_SETS, body)

    async def settled(updated: int) -> None:
        async def done() -> bool:
            await make_ready(cluster)
            found = await cluster.client.get(STATEFUL_SETS, "db", namespace=cluster.namespace)
            status = found.get("status") or {}
            same = status.get("currentRevision") == status.get("updateRevision")
            seen = status.get("observedGeneration") == found["metadata"]["generation"]
            return same and seen and status.get("readyReplicas") == updated

        await cluster.until(done, "settled")
        await cluster.settle()

    await settled(2)
    await change(cluster, STATEFUL_SETS, "db", template=template("db", A="2"))
    await settled(2)
    await change(cluster, STATEFUL_SETS, "db", replicas=1)
    await cluster.has_pods(1)


async def an_indexed_job(cluster: Cluster) -> None:
    spec = {"completions": 3, "parallelism": 2, "completionMode": "Indexed"}
    await make(cluster, BATCH_JOBS, batch_job("work", **spec))
    await cluster.has_pods(2, "Pending")
    await cluster.settle()
    await make_ready(cluster)
    await cluster.succeed()
    await cluster.has_pods(1, "Pending")
    await cluster.settle()
    await make_ready(cluster)
    await cluster.succeed()
    await _ended(cluster, "Complete")


async def a_job_that_fails(cluster: Cluster) -> None:
    await make(cluster, BATCH_JOBS, batch_job("work", parallelism=2, completions=2, backoffLimit=0))
    pods = sorted(await cluster.has_pods(2, "Pending"))
    await cluster.settle()
    await make_ready(cluster)
    await cluster.fail(pods[0])
    await _ended(cluster, "Failed")


async def _ended(cluster: Cluster, kind: str) -> None:
    async def done() -> bool:
        found = await cluster.client.get(BATCH_JOBS, "work", namespace=cluster.namespace)
        return kind in [e["type"] for e in (found.get("status") or {}).get("conditions") or ()]

    await cluster.until(done, kind)


LIVES: dict[str, Life] = {
    life.__name__: life
    for life in (an_update_and_its_undoing, an_ordered_set, an_indexed_job, a_job_that_fails)
}


async def play(cluster: Cluster, life: Life, name: str, crash_after: int | None) -> tuple[Any, int]:
    cluster.namespace = name
    await cluster.client.create(NAMESPACES, {"metadata": {"name": name}})
    await cluster.start(crash_after=crash_after)
    first = cluster.control
    assert first is not None
    await life(cluster)
    await cluster.settle()
    left = await left_of(cluster)
    made = sum(count for key, count in cluster.made.items() if key.startswith(f"{name}/"))
    await cluster.stop()
    return (left, made), len(first.writes)


async def left_of(cluster: Cluster) -> Object:
    async def items(kind: Any) -> list[Object]:
        return list((await cluster.client.list(kind, namespace=cluster.namespace)).items)

    revision = "deployment.kubernetes.io/revision"
    return {
        "pods": Counter(map(_pod, await items(PODS))),
        "sets": sorted(
            (e["metadata"]["annotations"][revision], e["spec"]["replicas"], *_counts(e))
            for e in await items(REPLICA_SETS)
        ),
        "owners": [
            (e["metadata"]["name"], *_counts(e))
            for kind in (DEPLOYMENTS, STATEFUL_SETS, BATCH_JOBS)
            for e in await items(kind)
        ],
        "revisions": sorted(e["revision"] for e in await items(CONTROLLER_REVISIONS)),
        "claims": sorted(e["metadata"]["name"] for e in await items(PERSISTENT_VOLUME_CLAIMS)),
        "endpoints": len(await items(ENDPOINTS)),
    }


def _pod(pod: Object) -> tuple[Any, ...]:
    metadata = pod["metadata"]
    env = [e.get("value") for e in pod["spec"]["containers"][0].get("env") or ()]
    index = (metadata.get("annotations") or {}).get(INDEX)
    return (
        metadata["ownerReferences"][0]["kind"],
        pod["status"]["phase"],
        index,
        str(env),
        bool(metadata.get("finalizers")),
    )


def _counts(obj: Object) -> tuple[Any, ...]:
    status = dict(obj.get("status") or {})
    conditions = status.pop("conditions", ())
    kept = {k: str(v) for k, v in status.items() if "Time" not in k and "Revision" not in k}
    return str(sorted(kept.items())), str(sorted((e["type"], e["status"]) for e in conditions))


@pytest.mark.slow
@pytest.mark.parametrize("life", LIVES)
async def test_restart_after_any_write_gives_the_same_final_objects(
    life: str, tmp_path: Path
) -> None:
    async with running_cluster(tmp_path / "data", start=False) as cluster:
        cluster.select = [*EVERY]
        want, writes = await play(cluster, LIVES[life], "undisturbed", None)
        assert 3 < writes < MAX_WRITES
        for number in range(1, writes + 1):
            found, _ = await play(cluster, LIVES[life], f"crash-{number}", number)
            assert want == found, f"after write {number}"
        # The number of writes depends on timing: simultaneous changes are written once.
        assert cluster.crashes > writes / 2

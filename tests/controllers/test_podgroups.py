"""PodGroups of pods that do not belong to a Volcano Job."""

import pytest

from hekla.controllers import podgroup
from hekla.kube.resources import PODGROUPS, PODS, REPLICA_SETS
from hekla.units.objects import Object

from .cluster import Cluster


def bare(
    name: str = "p",
    owner: Object | None = None,
    annotations: dict[str, str] | None = None,
) -> Object:
    container = {"name": "c", "image": "host", "resources": {"requests": {"cpu": "2"}}}
    metadata: Object = {"name": name, "namespace": "default", "annotations": annotations or {}}
    if owner is not None:
        metadata["ownerReferences"] = [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
                "controller": True,
            }
        ]
    return {"metadata": metadata, "spec": {"schedulerName": "volcano", "containers": [container]}}


def test_a_bare_pods_group_is_made_from_its_annotations() -> None:
    pod = bare(
        annotations={
            "scheduling.volcano.sh/queue-name": "q",
            "volcano.sh/preemptable": "true",
            "volcano.sh/network-topology-mode": "SOFT",
            "volcano.sh/network-topology-highest-tier": "2",
        }
    )
    pod["metadata"]["uid"] = "u"
    group = podgroup.build(pod, None)
    assert group["metadata"]["name"] == "podgroup-u"
    assert group["metadata"]["ownerReferences"][0]["kind"] == "Pod"
    assert group["metadata"]["annotations"] == {"volcano.sh/preemptable": "true"}
    spec = group["spec"]
    assert (spec["minMember"], spec["queue"], spec["minResources"]["cpu"]) == (1, "q", "2")
    assert spec["networkTopology"] == {"mode": "soft", "highestTierAllowed": 2}


@pytest.mark.parametrize("scheduler", ["default-scheduler", ""])
def test_pods_of_other_schedulers_get_no_group(scheduler: str) -> None:
    pod = bare()
    pod["spec"]["schedulerName"] = scheduler
    assert not podgroup.wants_group(pod, ["volcano"])


async def test_bare_pod_gets_a_group(cluster: Cluster) -> None:
    made = await cluster.client.create(PODS, bare())
    name = f"podgroup-{made['metadata']['uid']}"

    async def marked() -> bool:
        pod = (await cluster.pods())["p"]
        annotations = pod["metadata"].get("annotations") or {}
        return annotations.get("scheduling.k8s.io/group-name") == name

    await cluster.until(marked, "the pod is annotated")
    await cluster.client.get(PODGROUPS, name, namespace="default")


async def test_pods_of_a_replica_set_share_a_group_that_follows_it(cluster: Cluster) -> None:
    labels = {"matchLabels": {"a": "b"}}
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "host"}]},
    }
    body = {
        "metadata": {
            "name": "rs",
            "namespace": "default",
            "annotations": {"scheduling.volcano.sh/group-min-member": "2"},
        },
        "spec": {"replicas": 2, "selector": labels, "template": template},
    }
    owner = await cluster.client.create(REPLICA_SETS, body)
    for name in ("p1", "p2"):
        await cluster.client.create(PODS, bare(name, owner))
    name = f"podgroup-{owner['metadata']['uid']}"

    async def members() -> int:
        group = await cluster.client.find(PODGROUPS, name, namespace="default")
        return group["spec"]["minMember"] if group else 0

    async def has(count: int) -> bool:
        return await members() == count

    await cluster.until(lambda: has(2), "two members")
    await cluster.settle()
    patch: Object = {"metadata": {"annotations": {"scheduling.volcano.sh/group-min-member": "1"}}}
    await cluster.client.patch(REPLICA_SETS, "rs", patch, namespace="default")
    await cluster.until(lambda: has(1), "one member")
    await cluster.client.patch(REPLICA_SETS, "rs", {"spec": {"replicas": 0}}, namespace="default")
    await cluster.until(lambda: has(0), "no group")


async def test_bare_pods_get_a_group_if_they_name_one_of_our_schedulers(cluster: Cluster) -> None:
    await cluster.stop()
    await cluster.start(schedulers=["red", "blue"])
    container = {"name": "c", "image": "x"}
    for name, scheduler in (("a", "volcano"), ("b", "blue"), ("c", "red")):
        meta = {"name": name, "namespace": "default"}
        spec = {"schedulerName": scheduler, "containers": [container]}
        await cluster.client.create(PODS, {"metadata": meta, "spec": spec})

    async def grouped() -> bool:
        return len((await cluster.client.list(PODGROUPS)).items) == 2

    await cluster.until(grouped, "two groups")
    await cluster.settle()
    groups = (await cluster.client.list(PODGROUPS)).items
    owners = [group["metadata"]["ownerReferences"][0]["name"] for group in groups]
    assert sorted(owners) == ["b", "c"]

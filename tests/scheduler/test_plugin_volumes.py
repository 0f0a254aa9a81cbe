"""Claims and volumes: feasible nodes, and the volume limits of nodes."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.api import core
from hekla.api.meta import convert
from hekla.testing import Result, TestCluster, cluster, gang, node

NODES = [node(f"n{i}", labels={"zone": "a" if i < 3 else "b"}) for i in (1, 2, 3)]


def claim(name: str = "data", **spec: Any) -> core.PersistentVolumeClaim:
    notes = spec.pop("annotations", {})
    body = {
        "metadata": {"name": name, "namespace": "default", "annotations": notes},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "5Gi"}},
            **spec,
        },
    }
    return convert(body, core.PersistentVolumeClaim)


def volume(name: str, where: str = "", size: str = "10Gi", **spec: Any) -> core.PersistentVolume:
    if where:
        term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [where]}]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    body = {
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": size},
            "storageClassName": "slow",
            **spec,
        },
    }
    return convert(body, core.PersistentVolume)


def storage(mode: str = "WaitForFirstConsumer", **more: Any) -> core.StorageClass:
    body = {
        "metadata": {"name": "slow"},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": mode,
        **more,
    }
    return convert(body, core.StorageClass)


def using(*names: str) -> dict[str, Any]:
    return {
        "volumes": [{"name": n, "persistentVolumeClaim": {"claimName": n}} for n in names],
    }


def world(
    claims: list[core.PersistentVolumeClaim],
    volumes: list[core.PersistentVolume],
    *classes: core.StorageClass,
    members: int = 1,
) -> TestCluster:
    job = gang("a", members=members, cpu=1, spec=using(*(one.name for one in claims)))
    stage = cluster(NODES, [job], claims=claims, volumes=volumes)
    stage.state.storage_classes = {one.name: one for one in classes}
    return stage


def run(*args: Any, **more: Any) -> Result:
    return world(*args, **more).run()


def test_a_wait_for_first_consumer_claim_needs_a_free_volume_for_the_node() -> None:
    waits = claim(storageClassName="slow")
    assert run([waits], [volume("pv", "b")], storage()).binds == {"a-0": "n3"}


UNFIT = {
    "too small": volume("pv", "b", "1Gi"),
    "of another class": volume("pv", "b", storageClassName="fast"),
    "taken": volume("pv", "b", claimRef={"namespace": "default", "name": "other"}),
    "for one writer only": volume("pv", "b", accessModes=["ReadOnlyMany"]),
    "a block device": volume("pv", "b", volumeMode="Block"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_a_volume_does_not_satisfy_the_claim_if_it_is(case: str) -> None:
    result = run([claim(storageClassName="slow")], [UNFIT[case]], storage())
    assert result.binds == {}
    verdict = result.verdict("a")
    assert verdict is not None
    assert verdict.nodes == {"node(s) didn't find available persistent volumes to bind": 3}


def test_a_volume_reserved_for_the_claim_satisfies_it() -> None:
    kept = volume("pv", "b", "1Gi", claimRef={"namespace": "default", "name": "data"})
    assert run([claim(storageClassName="slow")], [kept], storage()).binds == {"a-0": "n3"}


def test_a_storage_class_restricts_the_nodes_of_its_volumes() -> None:
    terms = [{"matchLabelExpressions": [{"key": "zone", "values": ["b"]}]}]
    made_of = storage(provisioner="ebs.csi.aws.com", allowedTopologies=terms)
    assert run([claim(storageClassName="slow")], [], made_of).binds == {"a-0": "n3"}


def test_a_claim_being_provisioned_restricts_the_pod_to_its_node() -> None:
    chosen = claim(
        storageClassName="slow", annotations={"volume.kubernetes.io/selected-node": "n2"}
    )
    assert run([chosen], [], storage(provisioner="x")).binds == {"a-0": "n2"}


def test_an_unbound_claim_with_immediate_binding_keeps_its_pod_pending() -> None:
    result = run([claim(storageClassName="slow")], [volume("pv")], storage("Immediate"))
    assert result.binds == {}
    assert "3 pod has unbound immediate PersistentVolumeClaims" in result.why("a")


def test_without_storage_classes_a_claim_is_provided_where_its_pod_goes() -> None:
    assert len(run([claim(storageClassName="slow")], []).binds) == 1


def limit(stage: TestCluster, count: int, *names: str) -> None:
    for name in names:
        drivers = [{"name": "csi.x", "allocatable": {"count": count}}]
        body = {"metadata": {"name": name}, "spec": {"drivers": drivers}}
        stage.state.csi_nodes[name] = convert(body, core.CSINode)


def test_a_node_attaches_no_more_volumes_than_its_driver_can() -> None:
    """Limit 1 a node: two jobs with a claim each take two nodes, the third and fourth job the last.

    The claim of job 3 is that of job 0: where it is attached it costs nothing.
    """
    names = ["c0", "c1", "c2", "c0"]
    volumes = [volume(f"pv-{n}", csi={"driver": "csi.x"}) for n in ("c0", "c1", "c2")]
    claims = [claim(n, volumeName=f"pv-{n}") for n in ("c0", "c1", "c2")]
    jobs = [gang(f"j{i}", cpu=1, spec=using(n), age=9.0 - i) for i, n in enumerate(names)]
    stage = cluster(NODES[:2], jobs, claims=claims, volumes=volumes)
    limit(stage, 1, "n1", "n2")
    result = stage.run()
    assert set(result.binds) == {"j0-0", "j1-0", "j3-0"}
    assert result.binds["j0-0"] == result.binds["j3-0"] != result.binds["j1-0"]
    assert "node(s) exceed max volume count" in result.why("j2")
    stage.live(result)
    assert stage.run().binds == {}


def test_ephemeral_volumes_count_for_each_pod() -> None:
    """Five pods with an ephemeral volume, limit 2 on n1 and none stated for the others."""
    template = {"volumeClaimTemplate": {"spec": {"storageClassName": "slow"}}}
    spec = {"volumes": [{"name": "scratch", "ephemeral": template}], "nodeSelector": {"zone": "a"}}
    job = gang("a", members=5, minimum=1, cpu=1, spec=spec)
    stage = cluster(NODES[:1], [job])
    stage.state.storage_classes = {"slow": storage(provisioner="csi.x")}
    limit(stage, 2, "n1")
    assert len(stage.run().binds) == 2

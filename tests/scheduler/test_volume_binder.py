"""WaitForFirstConsumer claims: provisioned for the node, awaited, and rescheduled on failure."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hekla.api import core
from hekla.api.meta import convert
from hekla.api.wellknown import SELECTED_NODE
from hekla.scheduler.plugins.predicates.volumes import NO_PROVISIONER
from hekla.scheduler.service import volume_binder as provision
from hekla.scheduler.state.status import BINDING, PENDING
from hekla.testing import cluster, gang, node
from tests.scheduler.test_performer import Stage


def claim(name: str, *, volume: str = "", on: str = "") -> core.PersistentVolumeClaim:
    body = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "annotations": {SELECTED_NODE: on} if on else {},
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "late",
            "volumeName": volume,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    return convert(body, core.PersistentVolumeClaim)


def volume(name: str, size: str) -> core.PersistentVolume:
    body = {
        "metadata": {"name": name, "resourceVersion": "7"},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "late",
        },
        "status": {"phase": "Available"},
    }
    return convert(body, core.PersistentVolume)


def stage(provisioner: str, *volumes: core.PersistentVolume, claims: int = 1) -> Stage:
    names = [f"data{number}" for number in range(claims)]
    uses = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    late = {
        "metadata": {"name": "late"},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    world = cluster([node("n1", cpu=4)], [gang("a", cpu=1, spec={"volumes": uses})])
    world.state.storage_classes["late"] = convert(late, core.StorageClass)
    world.state.volumes.update({one.name: one for one in volumes})
    made = Stage(world)
    for name in names:
        made.cache.claims.put(claim(name))
    return made


async def begun(stage: Stage) -> None:
    stage.performer.start(stage.world.run().plan)
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_pod_is_bound_after_its_claim_is_provisioned_for_the_node() -> None:
    run = stage("disks.example.com")
    await begun(run)
    want: Any = {"metadata": {"annotations": {SELECTED_NODE: "n1"}}}
    assert ("data0", want) in run.client.patches
    run.cache.claims.put(claim("data0", on="n1"))
    await asyncio.sleep(0)
    assert run.client.bound == []
    assert run.status_of("a-0") == BINDING, "its room is kept meanwhile"
    run.cache.claims.put(claim("data0", volume="made", on="n1"))
    await run.performer.idle()
    assert run.client.bound == ["a-0"]


async def test_the_smallest_sufficient_volumes_are_reserved_for_claims() -> None:
    volumes = [volume("large", "9Gi"), volume("small", "2Gi"), volume("tiny", "1Mi")]
    run = stage(NO_PROVISIONER, *volumes, claims=2)
    await begun(run)
    sent = {name: body for name, body in run.client.patches if "spec" in body}
    kept = {name: body["spec"]["claimRef"]["name"] for name, body in sent.items()}
    assert kept == {"small": "data0", "large": "data1"}
    versions = {body["metadata"]["resourceVersion"] for body in sent.values()}
    assert versions == {"7"}, "another may want it at the same moment"
    for name, of in kept.items():
        run.cache.claims.put(claim(of, volume=name))
    await run.performer.idle()
    assert run.client.bound == ["a-0"]


async def test_a_pod_whose_provisioning_fails_is_scheduled_again() -> None:
    run = stage("disks.example.com")
    await begun(run)
    run.cache.claims.put(claim("data0", on="n1"))
    await asyncio.sleep(0)
    run.cache.claims.put(claim("data0"))
    await run.performer.idle()
    assert run.client.bound == []
    assert run.status_of("a-0") == PENDING
    (why,) = run.performer.skipped().values()
    assert 'persistentvolumeclaim "data0" cannot be provided on node n1' in why


async def test_every_starving_job_is_placed_eventually(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provision, "WAIT_S", 0.0)
    run = stage("disks.example.com")
    await begun(run)
    await run.performer.idle()
    assert run.client.bound == []
    (why,) = run.performer.skipped().values()
    assert "not provided in time" in why


async def test_a_volume_reserved_meanwhile_is_not_used() -> None:
    run = stage(NO_PROVISIONER, volume("only", "2Gi"))
    plan = run.world.run().plan
    run.world.state.volumes.clear()
    run.performer.start(plan)
    await run.performer.idle()
    assert run.client.bound == []
    assert run.status_of("a-0") == PENDING


async def test_bound_claims_do_not_delay_a_bind() -> None:
    run = stage("disks.example.com")
    run.cache.claims.put(claim("data0", volume="there"))
    run.world.state.volumes["there"] = volume("there", "1Gi")
    await run.cycle()
    assert run.client.bound == ["a-0"]

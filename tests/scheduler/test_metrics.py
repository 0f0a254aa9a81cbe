"""Metrics: values, removal with their objects, and documentation."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client import ProcessCollector

from hekla.controllers.metrics import Metrics as ControllerMetrics
from hekla.kube.resources import PODGROUPS, QUEUES
from hekla.scheduler.service.metrics import SchedulerMetrics

from .world import World

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


def series(text: bytes) -> dict[str, float]:
    lines = [line for line in text.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


async def test_queues_jobs_and_cycles_are_counted_and_vanish_with_their_objects(
    world: World,
) -> None:
    scheduler = await world.scheduler()
    await world.client.create(QUEUES, {"metadata": {"name": "lab"}, "spec": {"weight": 3}})
    await world.node("n1", 2)
    await world.gang("a", 2, queue="lab")
    await world.bound("a-0", "a-1")
    await world.gang("b", 1)
    await world.condition("b", "")
    await scheduler.turns(lambda: scheduler._performer.stats.bound == 2)
    found = series(await scheduler.render_metrics())
    assert found['volcano_queue_allocated_milli_cpu{queue_name="lab"}'] == 2000
    assert found['volcano_queue_weight{queue_name="lab"}'] == 3
    assert found['volcano_queue_deserved_milli_cpu{queue_name="lab"}'] > 0, "by proportion"
    assert found['volcano_queue_share{queue_name="lab"}'] > 0
    assert found['volcano_queue_real_capacity_milli_cpu{queue_name="lab"}'] == 2000
    assert found['volcano_unschedule_task_count{job_id="default/b"}'] == 1
    assert found["volcano_unschedule_job_count"] == 1
    assert found['hekla_effects_total{effect="bind",result="done"}'] == 2
    assert found["volcano_e2e_scheduling_latency_milliseconds_count"] == scheduler.cycles
    assert found['volcano_action_scheduling_latency_milliseconds_count{action="allocate"}'] > 0
    opened = '{OnSession="OnSessionOpen",plugin="proportion"}'
    assert f"volcano_plugin_scheduling_latency_milliseconds_count{opened}" in found
    labels = '{job_name="a",job_namespace="default",queue="lab"}'
    assert f"volcano_e2e_job_scheduling_duration{labels}" in found

    for group in ("a", "b"):
        await world.client.delete(PODGROUPS, group, namespace="default")
    await world.remove("a-0", "a-1", "b-0")
    await world.client.delete(QUEUES, "lab")
    await scheduler.turns(
        lambda: not scheduler.cluster.jobs and "lab" not in scheduler.cluster.queues
    )
    left = series(await scheduler.render_metrics())
    assert [name for name in left if '"lab"' in name or "default/b" in name] == []


def test_every_metric_is_on_the_page_with_its_labels_and_nothing_else_is() -> None:
    documented = dict(
        re.findall(r"^\| `([a-z0-9_]+)` \|[^|]*\| ([^|]*) \|", PAGE.read_text(), re.M)
    )
    registries = (SchedulerMetrics().registry, ControllerMetrics().registry)
    want_labels = {name: labels for each in registries for name, labels in each.declared.items()}
    process = ProcessCollector(registry=None)
    want_labels |= {f"{f.name}{'_total' * (f.type == 'counter')}": () for f in process.collect()}
    for name, labels in want_labels.items():
        assert name in documented, f"{name} is not in {PAGE.name}"
        assert tuple(re.findall(r"`(\w+)`", documented[name])) == labels, name
    assert set(documented) == set(want_labels)

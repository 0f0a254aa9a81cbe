"""Large jobs: pods are created in batches, and the writes of jobs and namespaces take turns."""

from __future__ import annotations

import asyncio

from hekla.controllers.effects import RequeueAfter
from hekla.controllers.job.dependents import MAX_BATCH, MIN_BATCH, batch_size
from hekla.controllers.job.effects import CreatePod, SetStatus
from hekla.controllers.job.slots import FairSlots
from hekla.controllers.job.sync import next_step
from hekla.controllers.job.view import JobView
from tests.controllers.builders import NOW, group, job, pod, task


def test_pods_of_a_large_job_are_created_in_batches_that_double() -> None:
    of = job(tasks=[task(replicas=1_000)], minAvailable=1)
    existing: list[int] = []
    for want in (128, 128, 256, 488):
        pods = [pod(of, "worker", index, "Pending") for index in existing]
        effects = next_step(JobView(of, NOW, group=group(of, "Running"), pods=pods))
        made = [each.body for each in effects if isinstance(each, CreatePod)]
        assert len(made) == want
        existing += range(len(existing), len(existing) + want)
        is_last = len(existing) == 1_000
        assert (RequeueAfter(0.0) in effects) != is_last
    assert existing == list(range(1_000))


def test_batch_is_bounded() -> None:
    assert [batch_size(n) for n in (0, 500, 100_000)] == [MIN_BATCH, 500, MAX_BATCH]


def test_status_counts_the_pods_of_a_job_between_its_batches() -> None:
    of = job(tasks=[task(replicas=1_000)], minAvailable=500)
    pods = [pod(of, "worker", index, "Pending") for index in range(128)]
    effects = next_step(JobView(of, NOW, group=group(of, "Inqueue"), pods=pods))
    assert [each.patch["pending"] for each in effects if isinstance(each, SetStatus)] == [128]


async def test_namespaces_and_their_jobs_take_turns_for_slots() -> None:
    slots, order = FairSlots(1), []

    async def write(namespace: str, name: str) -> None:
        async with slots.slot((namespace, name)):
            order.append(f"{namespace}/{name}")
            await asyncio.sleep(0)

    submitted = [("a", "big")] * 4 + [("a", "small")] * 2 + [("b", "x")] * 2
    await asyncio.gather(*(write(*each) for each in submitted))
    assert order == [
        "a/big", "a/big", "b/x", "a/small", "b/x", "a/big", "a/small", "a/big",
    ]  # fmt: skip


async def test_cancelled_write_frees_its_slot() -> None:
    slots = FairSlots(1)

    async def hold(until: asyncio.Event) -> None:
        async with slots.slot(("a", "j")):
            await until.wait()

    async def settle() -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    go = asyncio.Event()
    first, second, third = (asyncio.create_task(hold(go)) for _ in range(3))
    await settle()
    second.cancel()  # while it waits
    await settle()
    go.set()
    await asyncio.gather(first, third)
    granted, cancelled = (asyncio.create_task(hold(asyncio.Event())) for _ in range(2))
    await settle()
    granted.cancel()
    cancelled.cancel()  # may have been granted in the same step
    await asyncio.gather(granted, cancelled, return_exceptions=True)
    async with asyncio.timeout(1), slots.slot(("a", "j")):
        pass

"""The TTL of finished jobs."""

import time
from pathlib import Path

from hekla.controllers.gc import seconds_left
from hekla.kube.resources import JOBS
from hekla.units.clock import ManualClock

from .builders import NOW, recorded
from .builders import job as stored_job
from .cluster import running_cluster
from .manifests import job, task


def test_only_finished_jobs_expire_counted_from_their_end() -> None:
    running = recorded(stored_job(ttlSecondsAfterFinished=60), [], "Running")
    assert seconds_left(running, NOW + 1000) is None
    done = recorded(stored_job(ttlSecondsAfterFinished=60), [], "Failed")
    assert seconds_left(done, NOW + 10) == 50.0
    assert seconds_left(done, NOW + 100) == 0.0
    assert seconds_left(recorded(stored_job(), [], "Failed"), NOW) is None
    assert seconds_left(recorded(stored_job(ttlSecondsAfterFinished=0), [], "Aborted"), NOW) is None


async def test_finished_job_is_deleted_after_its_ttl(tmp_path: Path) -> None:
    clock = ManualClock(float(int(time.time())))  # certificates are checked against the real date
    async with running_cluster(tmp_path / "data", clock=clock) as cluster:
        await cluster.client.create(
            JOBS, job("train", task("worker", 1), ttlSecondsAfterFinished=60)
        )
        await cluster.has_pods(1, "Pending")
        await cluster.run()
        await cluster.reaches("Running")
        await cluster.succeed()
        await cluster.reaches("Completed")
        await cluster.settle()
        await clock.advance(59)
        await cluster.settle()
        assert await cluster.phase() == "Completed"
        await clock.advance(2)

        async def gone() -> bool:
            return await cluster.client.find(JOBS, "train", namespace="default") is None

        await cluster.until(gone, "the job is deleted")
        await cluster.has_pods(0)

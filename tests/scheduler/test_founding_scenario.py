"""Five TensorFlow jobs of 2 ps + 4 workers, and room for two of them."""

from __future__ import annotations

from hekla.scheduler import config
from hekla.testing import GroupBuilder, TestCluster, cluster, gang, node, pod

JOBS = [f"tf{i}" for i in range(5)]
WITHOUT_GANG = config.DEFAULT.replace("  - name: gang\n    enablePreemptable: false\n", "")


def job(name: str) -> GroupBuilder:
    servers = gang(name, members=2, minimum=6, role="ps", roles={"ps": 2, "worker": 4}, cpu=1)
    workers = [pod(f"{name}-worker-{i}", group=name, role="worker", cpu=1) for i in range(4)]
    return servers.and_pods(*workers)


def world(conf: str) -> TestCluster:
    return cluster(
        [node(f"n{i}", cpu=4) for i in range(3)], [job(name) for name in JOBS], conf=conf
    )


def members(binds: dict[str, str]) -> dict[str, int]:
    counts = dict.fromkeys(JOBS, 0)
    for name in binds:
        counts[name.split("-")[0]] += 1
    return counts


def test_with_gang_two_jobs_run_whole_and_all_five_finish() -> None:
    stage = world(config.DEFAULT)
    finished: set[str] = set()
    for _ in range(4):
        result = stage.run()
        placed = members(result.binds)
        assert set(placed.values()) <= {0, 6}, "a gang was half placed"
        stage.apply(result)
        done = [name for name, count in placed.items() if count == 6]
        finished.update(done)
        for name in done:
            for task in list(stage.state.jobs[f"default/{name}"].tasks.values()):
                stage.state.delete_pod(task.uid)
            stage.state.delete_group("default", name)
    assert finished == set(JOBS)


def test_without_gang_every_job_gets_a_part_and_none_can_run() -> None:
    """Twelve places over thirty pods, shared evenly: the deadlock that gangs are for."""
    result = world(WITHOUT_GANG).run()
    placed = members(result.binds)
    assert sum(placed.values()) == 12
    assert max(placed.values()) < 6

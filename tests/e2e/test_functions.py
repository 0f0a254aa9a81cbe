"""Functions as jobs on a cluster of `hekla up`: `submit(function, ...)` and `Executor`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import pytest
from tools.waiting import until

from hekla import (
    Executor,
    JobEnded,
    JobHandle,
    NotFound,
    Task,
    list_jobs,
    map_jobs,
    submit,
    submit_async,
)
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.resources import SECRETS
from hekla.kube.sync_client import SyncClient
from hekla.sdk import timeouts, watching
from hekla.sdk.functions import executor as executor_module

HEKLA = [sys.executable, "-m", "hekla.cli.main"]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    where = tmp_path_factory.mktemp("cluster")
    options = ["--port", "0", "--pod-user", "owner", "--data-dir", str(where)]
    command = [*HEKLA, "up", "--detach", *options]
    subprocess.run(command, check=True, timeout=600)
    yield where
    subprocess.run([*HEKLA, "down", "--data-dir", where], check=True, timeout=600)


@pytest.fixture
def client(up: Path) -> Iterator[SyncClient]:
    with SyncClient(kubeconfig.load(up / "kubeconfig"), component="test") as made:
        yield made


def add(first: int, second: int) -> int:
    print("adding", first, second)
    return first + second


def slow_add(first: int, second: int) -> int:
    time.sleep(3)  # long enough that the cluster is killed meanwhile
    return first + second


def fail(text: str) -> None:
    raise LookupError(text)


def test_function_runs_in_a_pod_and_its_output_is_apart_from_its_result(
    client: SyncClient,
) -> None:
    job = submit(add, 2, 3, task=Task(cpu="100m"), client=client)
    assert job.result(timeout_s=300) == 5
    assert [line.text for line in job.logs()] == ["adding 2 3"]
    (pod,) = job.pods()
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "100m"}


def test_secret_of_a_call_is_deleted_with_its_job(client: SyncClient) -> None:
    job = submit(add, 2, 3, client=client)
    name = f"{job.name}-call"
    assert client.find(SECRETS, name, namespace=job.namespace) is not None
    job.delete()
    until(lambda: client.find(SECRETS, name, namespace=job.namespace) is None)


def test_exception_of_the_pod_is_raised(client: SyncClient) -> None:
    with pytest.raises(LookupError, match="no weights") as caught:
        submit(fail, "no weights", client=client).result(timeout_s=300)
    assert "in job default/fail-" in caught.value.__notes__[0]


def test_call_whose_process_dies_ends_with_the_reason(client: SyncClient) -> None:
    with pytest.raises(JobEnded) as caught:
        submit(os._exit, 3, client=client).result(timeout_s=300)
    assert "exited with code 3" in caught.value.__notes__[0]


def test_coroutine_awaits_a_result(up: Path) -> None:
    async def both() -> list[int]:
        async with Client(kubeconfig.load(up / "kubeconfig"), component="test") as client:
            jobs = [await submit_async(add, n, n, client=client) for n in (1, 2)]
            return list(await asyncio.gather(*(job.result(300) for job in jobs)))

    assert asyncio.run(both()) == [2, 4]


def test_executor_has_the_interface_of_concurrent_futures(client: SyncClient) -> None:
    with Executor(client=client) as executor:
        future = executor.submit(add, 1, second=2)
        failing = executor.submit(fail, "x")
        assert not futures.wait([future], timeout=300).not_done
        assert future.result() == 3
        assert isinstance(failing.exception(), LookupError)
        assert list(executor.map(lambda n: n * n, range(5))) == [0, 1, 4, 9, 16]
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(add, 1, 2)


def test_end_of_an_executor_does_not_wait_for_its_watches(
    client: SyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "WATCH_S", 280.0)
    ended = threading.Event()

    def use() -> None:
        with Executor(client=client) as executor:
            assert executor.submit(add, 1, 2).result(300) == 3
        ended.set()

    threading.Thread(target=use, daemon=True).start()
    assert ended.wait(60)


def test_map_is_one_job_with_a_pod_per_chunk(client: SyncClient) -> None:
    with Executor(client=client) as executor:
        assert list(executor.map(add, range(5), range(5), chunksize=2)) == [0, 2, 4, 6, 8]
    (job,) = [job for job in list_jobs(client=client) if len(job.pods()) == 3]
    until(lambda: job.refresh()["status"]["state"]["phase"] == "Completed")
    assert job.object["spec"]["ttlSecondsAfterFinished"] > 0


def test_map_jobs_returns_the_results_of_a_pod_for_each_item(client: SyncClient) -> None:
    assert map_jobs(add, [1, 2], [3, 4], task=Task(cpu="10m"), client=client) == [4, 6]


def test_failed_call_is_tried_again(client: SyncClient, tmp_path: Path) -> None:
    def second_time(number: int) -> int:
        mark = tmp_path / str(number)
        if not mark.exists():
            mark.touch()
            raise LookupError("the first time")
        return number

    with Executor(client=client, retries=1, max_workers=1) as executor:
        assert list(executor.map(second_time, range(2))) == [0, 1]
        with pytest.raises(LookupError, match="always"):
            executor.submit(fail, "always").result(300)


def test_map_yields_early_results_before_one_fails(client: SyncClient) -> None:
    def half(number: int) -> int:
        if number == 2:
            raise LookupError("two")
        return number // 2

    with Executor(client=client) as executor:
        results = executor.map(half, range(4))
        assert [next(results), next(results)] == [0, 0]
        with pytest.raises(LookupError, match="two"):
            next(results)


def test_dead_pod_and_deleted_job_fail_their_futures_only(client: SyncClient) -> None:
    with Executor(client=client) as executor:
        dead = executor.submit(os._exit, 3)
        deleted = executor.submit(time.sleep, 600)
        good = executor.submit(add, 1, 1)
        until(deleted.running)
        deleted.job.delete()
        assert isinstance(dead.exception(300), JobEnded)
        assert isinstance(deleted.exception(300), NotFound)
        assert good.result(300) == 2


def test_call_that_waits_for_room_is_cancelled_with_its_job(client: SyncClient) -> None:
    with Executor(Task(cpu=1000), client=client) as executor:
        future = executor.submit(add, 1, 1)
        assert future.cancel()
        assert future.cancel()
    with pytest.raises(NotFound):
        JobHandle.of(future.job.name, client=client)


def test_end_of_an_executor_says_for_what_it_waits(
    client: SyncClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(executor_module, "SAY_AFTER_S", 0.0)
    executor = Executor(Task(cpu=1000), client=client)
    future = executor.submit(add, 1, 2)
    name = future.job.name
    until(lambda: "overused" in str(timeouts.reasons(client.config, "default", name)))
    ending = threading.Thread(target=executor.shutdown)
    ending.start()
    until(lambda: "waiting for job" in capsys.readouterr().err)
    future.cancel()
    ending.join(60)
    assert not ending.is_alive()


def test_executor_survives_a_restart_of_the_cluster(up: Path, client: SyncClient) -> None:
    with Executor(client=client) as executor:
        future = executor.submit(slow_add, 1, 2)
        until(future.running)
        assert not future.cancel()
        pid = int((up / "hekla.pid").read_text())
        os.kill(pid, 9)
        command = [*HEKLA, "up", "--detach", "--pod-user", "owner", "--data-dir", str(up)]
        subprocess.run(command, check=True, timeout=600)
        assert future.result(300) == 3

"""`hekla up` with vcctl and the SDK: jobs as real processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tools.waiting import until

from hekla import AsyncJobHandle, Job, JobHandle, Task, submit, submit_async
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.sync_client import SyncClient
from tests.cli.conftest import Run


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of a cluster on this machine."""
    data = tmp_path_factory.mktemp("cluster")
    process = subprocess.Popen(
        [sys.executable, "-m", "hekla.cli.main", "up", "--port", "0", "--data-dir", str(data)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert "is up" in process.stdout.readline()
    yield data / "kubeconfig"
    process.terminate()
    process.communicate(timeout=120)


@pytest.fixture
def here(call: Run, cluster: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("KUBECONFIG", str(cluster))
    return lambda *args: call("vcctl", *args)


def test_submit_with_logs_shows_all_pods_until_the_job_finishes(here: Run) -> None:
    done = here(
        *("job", "submit", "hello", "--image", "host", "-r", "2", "--cpu", "10m", "--logs"),
        *("--", "sh", "-c", "echo one; echo two"),
    )
    assert done.code == 0, done.err
    assert sorted(done.lines[:-1]) == [
        "hello-worker-0 | one",
        "hello-worker-0 | two",
        "hello-worker-1 | one",
        "hello-worker-1 | two",
    ]
    assert done.lines[-1] == "job hello is Completed"
    assert here("job", "logs", "hello", "--tail", "1").lines == [
        "hello-worker-0 | two",
        "hello-worker-1 | two",
    ]
    assert here("job", "logs", "hello", "--no-prefix", "--tail", "1").lines == ["two", "two"]


def test_a_job_that_fails_is_explained_by_its_exit_code(here: Run) -> None:
    args = ("--image", "host", "--cpu", "10m", "--wait", "--", "sh", "-c", "exit 3")
    done = here("job", "submit", "bad", *args)
    assert done.code == 1
    assert done.lines[-1] == "job bad is Failed"
    assert "pod bad-worker-0 exited with code 3" in here("job", "explain", "bad").out


def test_job_is_suspended_and_resumed(here: Run) -> None:
    args = ("--image", "host", "--cpu", "10m", "--", "sleep", "300")
    assert here("job", "submit", "my-job", *args).code == 0
    assert here("job", "wait", "my-job", "--for", "Running", "--timeout", "180s").code == 0
    assert here("job", "suspend", "-n", "my-job").code == 0
    assert here("job", "wait", "my-job", "--for", "Aborted", "--timeout", "180s").code == 0
    assert here("job", "resume", "-n", "my-job").code == 0
    assert here("job", "wait", "my-job", "--for", "Running", "--timeout", "180s").code == 0
    assert here("job", "delete", "-n", "my-job").code == 0


def test_explain_names_a_missing_image(here: Run, cluster: Path) -> None:
    image = "127.0.0.1:1/no-such-image:1"  # where skopeo is installed, it is refused at once
    assert here("job", "submit", "lost", "--image", image, "--", "true").code == 0
    with SyncClient(kubeconfig.load(cluster), component="test") as client:
        handle = JobHandle.of("lost", client=client)
        from hekla.kube.resources import PODS

        with client.watch(PODS, namespace="default", timeout_s=180) as events:
            for event in events:
                status = event.object.get("status") or {}
                states = [each["state"] for each in status.get("containerStatuses") or ()]
                reasons = [(each.get("waiting") or {}).get("reason") for each in states]
                if event.identity.name == "lost-worker-0" and reasons not in (
                    [],
                    ["ContainerCreating"],
                ):
                    break
        handle.refresh()
    said = here("job", "explain", "lost").out
    assert "pod lost-worker-0 cannot start: " in said
    assert "no-such-image" in said


def test_sdk_follows_a_job_until_it_finishes(cluster: Path) -> None:
    with SyncClient(kubeconfig.load(cluster), component="test") as client:
        job = submit(
            Job("from-python", [Task("w", image="host", command="echo a; echo b", cpu="10m")]),
            client=client,
        )
        assert [str(line) for line in job.logs(follow=True)] == [
            "from-python-w-0 | a",
            "from-python-w-0 | b",
        ]
        assert job.wait(timeout_s=180) == "Completed"


async def test_async_sdk_follows_a_job_until_it_finishes(cluster: Path) -> None:
    async with Client(kubeconfig.load(cluster), component="test") as client:
        job = await submit_async(
            Job("from-asyncio", [Task("w", image="host", command="echo a; echo b", cpu="10m")]),
            client=client,
        )
        lines = [line.text async for line in job.logs(follow=True)]
        assert lines == ["a", "b"]
        assert await job.wait(timeout_s=180) == "Completed"


async def test_async_logs_of_one_task_exclude_other_tasks(cluster: Path) -> None:
    async with Client(kubeconfig.load(cluster), component="test") as client:
        wanted = Task("wanted", image="host", command="echo wanted", cpu="10m")
        later = Task("later", image="host", command="echo later", cpu="10m", depends_on=["wanted"])
        job = await submit_async(Job("one-task", [wanted, later], min_available=1), client=client)
        lines = [line.text async for line in job.logs(follow=True, task="wanted")]
        assert lines == ["wanted"]
        assert await job.wait(timeout_s=180) == "Completed"


LONG = Task(
    "worker",
    image="host",
    command="echo started; exec sleep 600",
    cpu="10m",
    template={"spec": {"terminationGracePeriodSeconds": 1}},
)


def test_output_of_a_deleted_job_ends(cluster: Path) -> None:
    with SyncClient(kubeconfig.load(cluster), component="test") as client:
        job = submit(Job("gone", [LONG]), client=client)
        lines = []
        for line in job.logs(follow=True):
            lines.append(line.text)
            job.delete()
    assert lines == ["started"]


async def test_output_of_a_deleted_job_ends_for_coroutines(cluster: Path) -> None:
    async with Client(kubeconfig.load(cluster), component="test") as client:
        job = await submit_async(Job("gone-too", [LONG]), client=client)
        lines = []
        async for line in job.logs(follow=True):
            lines.append(line.text)
            await job.delete()
    assert lines == ["started"]


def test_output_of_attempts_is_read_also_of_a_deleted_job(here: Run, cluster: Path) -> None:
    flags = ("--image", "host", "--cpu", "10m", "--retries", "1", "--wait")
    tried = "echo in attempt; exit 3"
    assert here("job", "submit", "tried", *flags, "--", "sh", "-c", tried).code == 1
    both = [f"tried-worker-0 (attempt {number}) | in attempt" for number in (1, 2)]
    assert here("job", "logs", "tried").lines == ["tried-worker-0 | in attempt"]
    assert here("job", "logs", "tried", "--attempt", "all").lines == both
    assert here("job", "logs", "tried", "--attempt", "1").lines == both[:1]
    assert here("job", "logs", "tried", "--attempt", "2").lines == both[1:]
    assert "no output of attempt 3 is kept" in here("job", "logs", "tried", "--attempt", "3").err
    with SyncClient(kubeconfig.load(cluster), component="test") as client:
        job = JobHandle.of("tried", client=client)
        assert [str(line) for line in job.logs(attempt="all")] == both
        assert [str(line) for line in job.logs(attempt=2)] == both[1:]
        with pytest.raises(ValueError, match="counted from 1"):
            list(job.logs(attempt=0))
    assert here("job", "delete", "tried").code == 0
    until(lambda: here("job", "logs", "tried").lines == both)
    assert "job tried was deleted; its output is kept" in here("job", "logs", "tried").err


async def test_coroutines_read_the_output_of_attempts(here: Run, cluster: Path) -> None:
    flags = ("--image", "host", "--cpu", "10m", "--retries", "1", "--wait")
    assert here("job", "submit", "tried-2", *flags, "--", "sh", "-c", "echo x; exit 3").code == 1
    async with Client(kubeconfig.load(cluster), component="test") as client:
        job = await AsyncJobHandle.of("tried-2", client=client)
        assert [line.attempt async for line in job.logs(attempt="all")] == [1, 2]
        assert [line.attempt async for line in job.logs(attempt=1)] == [1]


def test_output_of_several_containers_names_them(here: Run, tmp_path: Path) -> None:
    one = {"image": "host", "resources": {"requests": {"cpu": "10m"}}}
    spec = {
        "restartPolicy": "Never",
        "initContainers": [{**one, "name": "prep", "command": ["echo", "P"]}],
        "containers": [
            {**one, "name": name, "command": ["echo", name.upper()]} for name in ("a", "b")
        ],
    }
    manifest = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "two"},
        "spec": {"tasks": [{"name": "w", "replicas": 1, "template": {"spec": spec}}]},
    }
    path = tmp_path / "two.yaml"
    path.write_text(yaml.safe_dump(manifest))
    assert here("job", "run", "-f", str(path)).code == 0
    assert here("job", "wait", "two", "--timeout", "180s").code == 0
    assert here("job", "logs", "two").lines == ["two-w-0/a | A", "two-w-0/b | B"]
    assert here("job", "logs", "two", "-f", "-c", "b").lines == ["two-w-0/b | B"]
    assert here("job", "logs", "two", "-c", "prep").lines == ["two-w-0/prep | P"]
    wrong = here("job", "logs", "two", "-c", "sidecar")
    assert wrong.code == 255
    assert 'job two has no container "sidecar"\n  there are: prep, a, b' in wrong.err
    assert 'job two has no task "worker"' in here("job", "logs", "two", "-t", "worker").err

"""Containers of jobs that are preempted, suspended, deleted, or cannot start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from tools.waiting import until

from hekla.api import wellknown
from hekla.kube.resources import CONFIGMAPS, JOBS, PODS, PRIORITY_CLASSES
from hekla.kube.sync_client import SyncClient
from tests.realkube.kubelet.jobs import FOREVER, finished, job, logs, phase, pods, submit, task

pytestmark = pytest.mark.kubelet
PREEMPTING = Path(__file__).parents[3] / "examples" / "share-one-box" / "scheduler.yaml"
CPU = "900m"
# Reports the signal, and ends with it.
POLITE = "trap 'echo asked to end; exit 0' TERM; echo started; while true; do sleep 0.1; done"


@pytest.fixture
def preempting(client: SyncClient) -> Iterator[None]:
    """The scheduler preempts, and there are two priorities."""
    body = yaml.safe_load(PREEMPTING.read_text())
    name = wellknown.SCHEDULER_CONFIG_MAP
    client.create(CONFIGMAPS, body, namespace=wellknown.SYSTEM_NAMESPACE)
    for level, value in (("low", 1), ("high", 100)):
        client.create(PRIORITY_CLASSES, {"metadata": {"name": level}, "value": value})
    yield
    client.delete(CONFIGMAPS, name, namespace=wellknown.SYSTEM_NAMESPACE)
    for level in ("low", "high"):
        client.delete(PRIORITY_CLASSES, level)


def alive(client: SyncClient, namespace: str, name: str) -> int:
    """Return how many pods of the job run and are not asked to end."""
    return sum(
        pod["metadata"]["name"].startswith(f"{name}-")
        and pod["status"].get("phase") == "Running"
        and "deletionTimestamp" not in pod["metadata"]
        for pod in pods(client, namespace)
    )


def test_an_urgent_gang_takes_the_surplus_of_an_elastic_job_and_gives_it_back(
    client: SyncClient, namespace: str, preempting: None
) -> None:
    elastic = task(replicas=4, cpu=CPU, script=FOREVER)
    submit(client, namespace, job("elastic", elastic, minAvailable=2, priorityClassName="low"))
    until(lambda: alive(client, namespace, "elastic") == 4)
    urgent = task(replicas=2, cpu=CPU, script=FOREVER)
    submit(client, namespace, job("urgent", urgent, priorityClassName="high"))
    until(lambda: alive(client, namespace, "urgent") == 2)
    assert alive(client, namespace, "elastic") == 2
    assert phase(client, namespace, "elastic") == "Running"
    client.delete(JOBS, "urgent", namespace=namespace)
    until(lambda: alive(client, namespace, "elastic") == 4)


def test_suspend_ends_the_containers_and_resume_starts_new_ones(
    vcctl: Callable[..., str], client: SyncClient, namespace: str
) -> None:
    submit(client, namespace, job("rests", task(replicas=2, script=POLITE)))
    until(lambda: phase(client, namespace, "rests") == "Running")
    before = {pod["metadata"]["uid"] for pod in pods(client, namespace)}
    vcctl("job", "suspend", "-N", "rests", "-n", namespace)
    until(lambda: phase(client, namespace, "rests") == "Aborted")
    until(lambda: not pods(client, namespace))
    vcctl("job", "resume", "-N", "rests", "-n", namespace)
    until(lambda: alive(client, namespace, "rests") == 2)
    assert not before & {pod["metadata"]["uid"] for pod in pods(client, namespace)}


def test_a_container_is_asked_to_end_before_it_is_killed(
    client: SyncClient, namespace: str, tmp_path: Path
) -> None:
    tmp_path.chmod(0o777)
    polite = task(
        script=f"exec > /out/log 2>&1; {POLITE}",
        pod={
            "terminationGracePeriodSeconds": 60,
            "volumes": [{"name": "out", "hostPath": {"path": str(tmp_path)}}],
        },
        container={"volumeMounts": [{"name": "out", "mountPath": "/out"}]},
    )
    submit(client, namespace, job("polite", polite))
    log = tmp_path / "log"
    until(lambda: log.exists() and log.read_text() == "started\n")
    client.delete(JOBS, "polite", namespace=namespace)
    until(lambda: not pods(client, namespace))
    assert log.read_text() == "started\nasked to end\n"


def test_a_job_whose_image_is_missing_is_aborted_after_a_time(
    client: SyncClient, namespace: str
) -> None:
    policies = [{"event": "PodPending", "action": "AbortJob", "timeout": "5s"}]
    missing = {"image": "localhost/no-such-image:1", "imagePullPolicy": "Never"}
    submit(client, namespace, job("missing", task(container=missing), policies=policies))

    def reason() -> str:
        found = client.find(PODS, "missing-worker-0", namespace=namespace) or {}
        told = (found.get("status") or {}).get("containerStatuses") or [{}]
        return str(((told[0].get("state") or {}).get("waiting") or {}).get("reason", ""))

    until(lambda: reason() == "ErrImageNeverPull")
    finished(client, namespace, "missing", "Aborted")


def test_a_failing_container_restarts_in_its_pod(client: SyncClient, namespace: str) -> None:
    flaky = task(
        script="test -e /again/mark && echo second && exit 0; touch /again/mark; exit 1",
        pod={"restartPolicy": "OnFailure", "volumes": [{"name": "again", "emptyDir": {}}]},
        container={"volumeMounts": [{"name": "again", "mountPath": "/again"}]},
    )
    submit(client, namespace, job("flaky", flaky))
    finished(client, namespace, "flaky")
    assert logs(client, namespace, "flaky-worker-0") == "second\n"
    (pod,) = pods(client, namespace)
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 1

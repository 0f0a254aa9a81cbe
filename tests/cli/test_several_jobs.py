"""Lists of jobs, waiting for several, and explanations in the SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from hekla import (
    Explanation,
    JobEnded,
    JobHandle,
    NotFound,
    Queue,
    as_completed,
    as_completed_async,
    create_queue_async,
    gather,
    gather_async,
    list_jobs,
    list_jobs_async,
)
from hekla.kube.client import Client
from hekla.kube.resources import EVENTS, JOBS, NAMESPACES, PODGROUPS
from hekla.kube.sync_client import SyncClient
from hekla.sdk import several_jobs
from hekla.sdk.async_handle import AsyncJobHandle
from hekla.units.objects import Object
from tests.cli.test_job_runtime import unschedulable

Make = Callable[..., Object]


@pytest.fixture
def finish(admin: SyncClient) -> Callable[..., None]:
    """Set the phase of a job, as a controller would."""

    def finish(job: JobHandle, phase: str = "Completed") -> None:
        state = {"state": {"phase": phase}}
        admin.patch_status(JOBS, job.name, state, namespace=job.namespace)

    return finish


@pytest.fixture
def handles(admin: SyncClient, make_job: Make) -> list[JobHandle]:
    return [JobHandle(admin, make_job(name)) for name in ("a", "b", "c")]


def test_jobs_are_listed_by_queue_phase_and_label(
    admin: SyncClient, make_job: Make, namespace: str
) -> None:
    make_job("b", phase="Running", labels={"team": "ml"})
    make_job("a", phase="Completed")

    def names(**more: Any) -> list[str]:
        return [job.name for job in list_jobs(client=admin, namespace=namespace, **more)]

    assert names() == ["a", "b"]
    assert names(phase="Running") == ["b"]
    assert names(labels="team=ml") == ["b"]
    assert names(queue="default") == ["a", "b"]
    assert names(queue="other") == []
    everywhere = list_jobs(client=admin, all_namespaces=True)
    assert (namespace, "a") in [(job.namespace, job.name) for job in everywhere]


def test_jobs_are_yielded_in_the_order_in_which_they_finish(
    handles: list[JobHandle], finish: Callable[..., None]
) -> None:
    a, b, c = handles
    finish(b)
    ended = as_completed(handles, timeout_s=60)
    assert next(ended) is b
    finish(c, "Failed")
    assert next(ended) is c
    finish(a)
    assert next(ended) is a
    assert list(ended) == []
    assert [job.phase for job in handles] == ["Completed", "Completed", "Failed"]


def test_jobs_of_several_namespaces_are_awaited_together(
    admin: SyncClient, handles: list[JobHandle], finish: Callable[..., None], unique: str
) -> None:
    other = f"{unique}-other"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}}
    admin.create(NAMESPACES, body)
    spec = {key: handles[0].object[key] for key in ("apiVersion", "kind", "spec")}
    far = JobHandle(admin, admin.create(JOBS, {**spec, "metadata": {"name": "a"}}, namespace=other))
    for job in (far, handles[0]):
        finish(job)
    assert gather([far, handles[0]], timeout_s=60) == [far, handles[0]]
    assert far.phase == "Completed"


def test_gather_raises_for_a_job_that_failed_and_names_it(
    handles: list[JobHandle], finish: Callable[..., None], namespace: str
) -> None:
    finish(handles[1], "Failed")
    with pytest.raises(JobEnded, match=f"job {namespace}/b finished as Failed") as ended:
        gather(handles, timeout_s=60)
    assert ended.value.job["metadata"]["name"] == "b"


def test_timeout_names_the_jobs_that_are_missing(
    handles: list[JobHandle], finish: Callable[..., None]
) -> None:
    with pytest.raises(TimeoutError, match="not finished within 0 s: a, b, c"):
        gather(handles, timeout_s=0)


def pending(admin: SyncClient, job: JobHandle) -> None:
    """Write the verdict of a scheduler, and a warning of the controller."""
    admin.create(PODGROUPS, unschedulable(job.object, "no node has 9 cpu"), namespace=job.namespace)
    about = {"kind": "Job", "uid": job.object["metadata"]["uid"], "namespace": job.namespace}
    event = {
        "metadata": {"name": f"{job.name}.1"},
        "involvedObject": about,
        "type": "Warning",
        "reason": "FailedCreate",
        "message": "exceeded quota: small",
    }
    admin.create(EVENTS, event, namespace=job.namespace)


REASONS = ["  no node has 9 cpu", "  FailedCreate: exceeded quota: small"]
STEP = (
    "  next: the pods are created when the quota allows it: wait for other pods, or raise the quota"
)


def test_timeouts_carry_the_reasons_and_the_next_step(
    admin: SyncClient, handles: list[JobHandle]
) -> None:
    job = handles[0]
    pending(admin, job)
    head = f"job {job.namespace}/a is Pending"
    with pytest.raises(TimeoutError) as one:
        job.wait(timeout_s=0)
    assert str(one.value).splitlines() == [
        "job a is not finished after 0 s", head, *REASONS, STEP,
    ]  # fmt: skip
    with pytest.raises(TimeoutError) as several:
        gather([job], timeout_s=0)
    assert str(several.value).splitlines()[1:] == [head, *REASONS, STEP]


async def test_timeouts_of_coroutines_carry_the_reasons(
    admin: SyncClient, handles: list[JobHandle]
) -> None:
    pending(admin, handles[0])
    where = handles[0].namespace
    async with Client(admin.config) as client:
        job = await AsyncJobHandle.of("a", namespace=where, client=client)
        with pytest.raises(TimeoutError) as late:
            await job.wait("Running", timeout_s=0)
    lines = str(late.value).splitlines()
    assert lines[0] == "job a is not in phase Running after 0 s"
    assert lines[2:] == [*REASONS, STEP]


def test_progress_bar_shows_why_jobs_do_not_run(
    admin: SyncClient,
    handles: list[JobHandle],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(several_jobs, "CHECK_S", 0.01)
    pending(admin, handles[0])
    with pytest.raises(TimeoutError):
        list(as_completed(handles[:1], timeout_s=2, progress=True))
    assert capsys.readouterr().out.count("no node has 9 cpu") == 1


def test_a_deleted_job_is_reported(admin: SyncClient, handles: list[JobHandle]) -> None:
    handles[0].delete()
    with pytest.raises(NotFound, match='"a" was deleted'):
        gather(handles, timeout_s=60)


def test_nothing_to_wait_for_ends_at_once() -> None:
    assert gather([]) == []


def test_a_job_explains_itself(handles: list[JobHandle]) -> None:
    found = handles[0].explain()
    assert isinstance(found, Explanation)
    assert (found.phase, found.reason) == (
        "Pending", "it has no PodGroup yet: no controller has handled it",
    )  # fmt: skip
    assert str(found).splitlines()[0] == f"job {handles[0].namespace}/a is Pending"


async def test_a_job_explains_itself_to_coroutines(
    admin: SyncClient, handles: list[JobHandle], finish: Callable[..., None]
) -> None:
    finish(handles[0], "Aborted")
    async with Client(admin.config) as client:
        job = await AsyncJobHandle.of("a", namespace=handles[0].namespace, client=client)
        found = await job.explain()
    assert found.reason == "it is suspended and can be resumed"
    assert found.next_steps == (f"hekla job resume -N a -n {handles[0].namespace}",)


def test_progress_bar_counts_jobs_and_names_failures(
    handles: list[JobHandle], finish: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    a, b, c = handles
    finish(a)
    finish(b, "Failed")
    finish(c)
    assert {job.name for job in as_completed(handles, timeout_s=60, progress=True)} == {*"abc"}
    shown = capsys.readouterr().out
    assert "jobs (1 not completed)" in shown
    assert "3/3" in shown


def test_notebook_shows_jobs_as_a_table_with_escaped_names(
    admin: SyncClient, make_job: Make, namespace: str
) -> None:
    make_job("a", phase="Running", status={"running": 2})
    jobs = list_jobs(client=admin, namespace=namespace)
    assert f"<td>{namespace}</td><td>a</td><td>default</td>" in jobs._repr_html_()
    jobs[0].object["spec"]["queue"] = "<script>"
    assert "<td>&lt;script&gt;</td>" in jobs[0]._repr_html_()
    told = Explanation(job="x", phase="Failed", reason="<b>", next_steps=())
    assert "&lt;b&gt;" in told._repr_html_()


@pytest.fixture
async def client(admin: SyncClient) -> AsyncIterator[Client]:
    async with Client(admin.config) as made:
        yield made


async def of(client: Client, handles: list[JobHandle]) -> list[AsyncJobHandle]:
    where = handles[0].namespace
    return [await AsyncJobHandle.of(job.name, namespace=where, client=client) for job in handles]


async def test_coroutines_get_jobs_in_the_order_in_which_they_finish(
    client: Client, handles: list[JobHandle], finish: Callable[..., None]
) -> None:
    jobs = await of(client, handles)
    finish(handles[1])
    later = [(handles[2], "Failed"), (handles[0], "Completed")]
    ended = []
    async for job in as_completed_async(jobs, timeout_s=60):
        ended.append(job.name)
        if later:
            finish(*later.pop(0))
    assert ended == ["b", "c", "a"]
    with pytest.raises(JobEnded, match="finished as Failed"):
        await gather_async(jobs, timeout_s=60)


async def test_coroutines_gather_jobs_or_learn_why_not(
    client: Client, admin: SyncClient, handles: list[JobHandle], finish: Callable[..., None]
) -> None:
    jobs = await of(client, handles)
    finish(handles[0])
    assert await gather_async(jobs[:1], timeout_s=60) == jobs[:1]
    assert await gather_async([]) == []
    pending(admin, handles[1])
    with pytest.raises(TimeoutError, match=r"not finished within 0 s: b\n.*\n  no node has 9 cpu"):
        await gather_async(jobs[1:2], timeout_s=0)
    handles[2].delete()
    with pytest.raises(NotFound, match='"c" was deleted'):
        await gather_async(jobs[2:], timeout_s=60)


async def test_coroutines_list_jobs_and_create_queues(
    client: Client, handles: list[JobHandle], finish: Callable[..., None], unique: str
) -> None:
    finish(handles[1])
    where = handles[0].namespace
    found = await list_jobs_async(client=client, namespace=where, phase="completed")
    assert [job.name for job in found] == ["b"]
    made = await create_queue_async(Queue(unique, weight=2), client=client)
    assert made["spec"]["weight"] == 2

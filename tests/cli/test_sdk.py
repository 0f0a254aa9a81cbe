"""The SDK: builders, validation, handles; sync and async."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hekla
import hekla.sdk
from hekla import (
    AsyncJobHandle,
    Executor,
    Job,
    Queue,
    Task,
    as_completed,
    create_queue,
    gather,
    gather_async,
    submit,
    submit_async,
)
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.errors import ConnectionLost, Invalid
from hekla.kube.resources import COMMANDS, JOBS, QUEUES
from hekla.kube.sync_client import SyncClient
from hekla.nodeagent.environment import command_line, expand
from hekla.sdk import job_commands, job_phases
from hekla.sdk.async_clients import default_client
from hekla.sdk.builders import argv, verbatim
from hekla.sdk.job_wait import JobEnded
from hekla.sdk.unknown_fields import unknown_fields


def test_job_builder_returns_a_manifest() -> None:
    built = Job(
        "train",
        [
            Task("ps", image="tf", command=["python", "ps.py"], cpu=1),
            Task(
                "worker",
                image="tf",
                command="python worker.py",
                replicas=4,
                gpu=1,
                depends_on=["ps"],
                policies={"TaskCompleted": "CompleteJob"},
                template={"spec": {"nodeSelector": {"disk": "fast"}}},
            ),
        ],
        queue="ml",
        min_available=3,
        plugins={"svc": []},
        spec={"networkTopology": {"mode": "hard"}},
    )
    manifest = built.manifest()
    assert manifest["metadata"] == {"name": "train"}
    spec = manifest["spec"]
    assert (spec["queue"], spec["minAvailable"]) == ("ml", 3)
    assert spec["networkTopology"] == {"mode": "hard"}
    ps, worker = spec["tasks"]
    assert ps["template"]["spec"]["containers"][0]["command"] == ["python", "ps.py"]
    assert ps["template"]["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "1"}}
    assert worker["dependsOn"] == {"name": ["ps"]}
    assert worker["policies"] == [{"event": "TaskCompleted", "action": "CompleteJob"}]
    assert worker["template"]["spec"]["nodeSelector"] == {"disk": "fast"}
    container = worker["template"]["spec"]["containers"][0]
    assert container["command"] == ["sh", "-c", "python worker.py"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "1"}


WORDS = st.lists(st.sampled_from("$()AB "), max_size=12).map("".join) | st.text(max_size=20)


@given(words=st.lists(WORDS, min_size=1), variables=st.dictionaries(WORDS, WORDS))
def test_a_command_arrives_verbatim_whatever_the_variables_are(
    words: list[str], variables: dict[str, str]
) -> None:
    assert command_line({"command": argv(words)}, variables) == words
    assert expand(verbatim(words[0]), variables) == words[0]
    if words[0]:
        assert command_line({"command": argv(words[0])}, variables) == ["sh", "-c", words[0]]


def test_a_task_refuses_memory_in_bytes_and_amounts_that_are_none() -> None:
    assert Task(memory="1Mi", cpu=0.5, gpu=1).manifest()
    for amount, want in ((64, "did you mean 64Mi"), ("16gb", "did you mean 16Gi"), ("x", "number")):
        with pytest.raises(ValueError, match=want):
            Task(memory=amount).manifest()


def test_queue_builder_returns_a_manifest() -> None:
    built = Queue("ml", weight=3, parent="root", guarantee={"cpu": 2}, reclaimable=False)
    assert built.manifest()["spec"] == {
        "weight": 3,
        "guarantee": {"resource": {"cpu": "2"}},
        "reclaimable": False,
        "parent": "root",
    }


def test_unknown_names_raise_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Jbo'"):
        _ = hekla.Jbo


def test_a_job_is_submitted_suspended_scaled_waited_for_and_deleted(
    admin: SyncClient, namespace: str
) -> None:
    handle = submit(Job("train", [Task("worker", replicas=2)]), namespace=namespace, client=admin)
    assert (handle.name, handle.namespace, handle.phase) == ("train", namespace, "Pending")
    handle.suspend()
    handle.resume()
    assert len(admin.list(COMMANDS, namespace=namespace)) == 2
    handle.scale(3)
    assert handle.object["spec"]["tasks"][0]["replicas"] == 3
    admin.patch_status(JOBS, "train", {"state": {"phase": "Completed"}}, namespace=namespace)
    assert handle.wait(timeout_s=60) == "Completed"
    with pytest.raises(JobEnded):
        handle.wait("Running")
    assert list(handle.logs()) == []
    assert handle.pods() == []
    handle.delete()
    assert admin.find(JOBS, "train", namespace=namespace) is None


def test_invalid_job_is_rejected_with_all_errors(
    admin: SyncClient, namespace: str, unique: str
) -> None:
    wrong = Job("train", [Task("worker", min_available=4)], queue=f"{unique}-nowhere")
    with pytest.raises(Invalid) as refused:
        submit(wrong, namespace=namespace, client=admin)
    assert len(refused.value.causes) >= 2
    assert any("spec.queue" in cause for cause in refused.value.causes)


async def test_async_calls_without_a_client_share_one_until_the_loop_ends(
    server: Path, admin: SyncClient, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(server))
    job = Job("train", [Task("worker")])
    handle = await submit_async(job, namespace=namespace)
    again = await AsyncJobHandle.of("train", namespace=namespace)
    assert (handle.name, again.name) == ("train", "train")
    assert await default_client() is await default_client()
    with pytest.raises(Invalid, match="did you mean 'minAvailable'"):
        await submit_async(Job("train", [Task("worker")], spec={"minAvaliable": 1}))


def test_client_of_an_event_loop_is_closed_with_it(
    server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(server))

    async def use() -> Client:
        client = await default_client()
        await client.list(JOBS)
        return client

    first, second = asyncio.run(use()), asyncio.run(use())
    assert first is not second
    with pytest.raises(ConnectionLost, match="this client is closed"):
        asyncio.run(first.get(JOBS, "train"))


def test_only_public_names_of_the_sdk_are_listed_before_they_are_used() -> None:
    for module in (hekla, hekla.sdk):
        listed = {name for name in dir(module) if not name.startswith("__")}
        assert listed == {*module.__all__} - {"__version__"}


def test_what_is_no_job_is_refused_with_what_to_pass(admin: SyncClient) -> None:
    with pytest.raises(TypeError, match=r"'hello' is a str: pass a Job, a manifest"):
        submit("hello", client=admin)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r'submit\(Job\("worker", \[task\]\)\)'):
        submit(Task("worker"), client=admin)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"1024 is a int"):
        submit(2**10, client=admin)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r'a str: pass a Queue, such as create_queue\(Queue\("ml"'):
        create_queue("ml", client=admin)  # type: ignore[arg-type]


def test_executor_refuses_numbers_that_run_nothing(admin: SyncClient) -> None:
    with pytest.raises(ValueError, match="max_workers is 0: at least one pod"):
        Executor(max_workers=0, client=admin)
    with pytest.raises(ValueError, match="retries is -1: it is a number of further"):
        Executor(retries=-1, client=admin)


def test_what_is_no_handle_is_refused_with_what_to_pass() -> None:
    for wait in (gather, as_completed):
        with pytest.raises(TypeError, match=r"'train' is a str: pass what submit\(\) returned"):
            wait(["train"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"JobHandle\.of\(NAME\)"):
        asyncio.run(gather_async(["train"]))  # type: ignore[list-item]


def test_misspelt_field_is_refused_unless_checks_are_off(admin: SyncClient, namespace: str) -> None:
    misspelt = Job("train", [Task("worker")], spec={"minAvaliable": 1})
    with pytest.raises(Invalid, match="did you mean 'minAvailable'") as refused:
        submit(misspelt, namespace=namespace, client=admin)
    assert len(refused.value.causes) == 1
    assert submit(misspelt, namespace=namespace, client=admin, check=False).name == "train"


def test_a_queue_is_created(admin: SyncClient, unique: str) -> None:
    create_queue(Queue(unique, weight=2), client=admin)
    assert admin.get(QUEUES, unique)["spec"]["weight"] == 2


async def test_async_handle_has_the_same_behaviour(
    server: Path, admin: SyncClient, namespace: str
) -> None:
    async with Client(kubeconfig.load(server), component="test") as client:
        handle = await submit_async(
            Job("train", [Task("worker")]), client=client, namespace=namespace
        )
        assert handle.phase == "Pending"
        await handle.suspend()
        await handle.scale(2)
        admin.patch_status(JOBS, "train", {"state": {"phase": "Completed"}}, namespace=namespace)
        assert await handle.wait(timeout_s=60) == "Completed"
        assert [line async for line in handle.logs()] == []
        assert [line async for line in handle.logs(follow=True)] == []
        await handle.delete()


def test_unknown_fields_are_reported_with_a_suggestion() -> None:
    job = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "spec": {
            "minAvaliable": 1,
            "tasks": [{"replica": 3, "template": {"spec": {"contaners": []}}}],
            "policies": [{"event": "PodFailed", "actoin": "RestartJob"}],
        },
    }
    assert list(unknown_fields(job)) == [
        "spec.minAvaliable: unknown field, without effect; did you mean 'minAvailable'?",
        "spec.tasks[0].replica: unknown field, without effect; did you mean 'replicas'?",
        "spec.tasks[0].template.spec.contaners: unknown field, without effect; "
        "did you mean 'containers'?",
        "spec.policies[0].actoin: unknown field, without effect; did you mean 'action'?",
    ]


def _two_tasks() -> dict[str, Any]:
    tasks = [{"name": "a", "replicas": 1}, {"name": "b", "replicas": 4, "minAvailable": 4}]
    return {"spec": {"minAvailable": 5, "tasks": tasks}}


def test_scale_patch_names_the_task_and_lowers_min_available() -> None:
    with pytest.raises(ValueError, match="has 2 tasks: a, b; name one"):
        job_commands.scale_patch(_two_tasks(), 2)
    patch = job_commands.scale_patch(_two_tasks(), 2, task="b")
    assert patch == [
        {"op": "test", "path": "/spec/tasks/1/name", "value": "b"},
        {"op": "replace", "path": "/spec/tasks/1/replicas", "value": 2},
        {"op": "replace", "path": "/spec/tasks/1/minAvailable", "value": 2},
        {"op": "replace", "path": "/spec/minAvailable", "value": 3},
    ]


def test_wait_conditions() -> None:
    def job(phase: str) -> dict[str, Any]:
        return {"status": {"state": {"phase": phase}}}

    assert job_phases.is_reached(job("Failed"), "finished")
    assert not job_phases.is_reached(job("Aborted"), "finished")
    assert job_phases.is_reached(job("Running"), "started")
    assert not job_phases.is_reached(job(""), "started")
    assert job_phases.is_reached(job("Aborted"), "Aborted")
    assert job_phases.is_unreachable(job("Completed"), "Running")

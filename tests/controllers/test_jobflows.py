"""JobFlows: the order in which jobs start."""

import asyncio
from typing import Any

from hekla.controllers.effects import CreateJob, DeleteJob, EmitEvent, RequeueAfter, SetStatus
from hekla.controllers.jobflow.flow import (
    FlowView,
    Probe,
    all_probes,
    job_of,
    next_step,
    patched_job_spec,
)
from hekla.controllers.jobflow.probes import probe_succeeds
from hekla.kube.resources import JOB_FLOWS, JOB_TEMPLATES, JOBS
from hekla.units.objects import Object
from hekla.units.patches import merge_patch

from .cluster import Cluster
from .manifests import job, task


def flow(*steps: Object, **more: Any) -> Object:
    return {
        "apiVersion": "flow.volcano.sh/v1alpha1",
        "kind": "JobFlow",
        "metadata": {"name": "f", "namespace": "default", "uid": "uid-f"},
        "spec": {"flows": list(steps), **more},
        "status": {},
    }


def step(name: str, *targets: str, **more: Any) -> Object:
    probe = more.pop("probe", None)
    needs: Object = {"targets": list(targets)}
    if probe:
        needs["probe"] = probe
    return {"name": name, **({"dependsOn": needs} if targets else {}), **more}


def template(name: str) -> Object:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": job()["spec"]}


TEMPLATES = {name: template(name) for name in "abc"}


def made(of: Object, name: str, phase: str, **status: Any) -> Object:
    found = job_of(of, {"name": name}, TEMPLATES[name])
    found["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    found["status"] = {
        "state": {"phase": phase, "lastTransitionTime": "2026-01-01T00:01:00Z"},
        **status,
    }
    return found


def created(effects: list[Any]) -> list[str]:
    found = [each for each in effects if isinstance(each, CreateJob)]
    return [each.body["metadata"]["name"] for each in found]


def after(of: Object, effects: list[Any]) -> Object:
    status: Object = of["status"]
    for effect in effects:
        if isinstance(effect, SetStatus):
            status = merge_patch(status, effect.patch)
    return status


def test_steps_start_when_their_targets_have_completed() -> None:
    of = flow(step("a"), step("b", "a"), step("c", "a", "b"))
    assert created(next_step(FlowView(of, [], TEMPLATES))) == ["f-a"]
    jobs = [made(of, "a", "Running")]
    assert created(next_step(FlowView(of, jobs, TEMPLATES))) == []
    jobs = [made(of, "a", "Completed")]
    assert created(next_step(FlowView(of, jobs, TEMPLATES))) == ["f-b"]
    jobs += [made(of, "b", "Completed")]
    assert created(next_step(FlowView(of, jobs, TEMPLATES))) == ["f-c"]


def test_jobs_are_labelled_with_their_flow_and_template() -> None:
    body = job_of(flow(step("a")), step("a"), TEMPLATES["a"])
    marks = {
        "volcano.sh/createdByJobTemplate": "default.a",
        "volcano.sh/createdByJobFlow": "default.f",
    }
    assert marks == body["metadata"]["labels"] == body["metadata"]["annotations"]
    assert body["metadata"]["ownerReferences"][0]["kind"] == "JobFlow"


def test_name_too_long_for_a_label_is_only_an_annotation() -> None:
    of = flow(step("a"))
    of["metadata"]["name"] = "f" * 60
    metadata = job_of(of, step("a"), TEMPLATES["a"])["metadata"]
    assert list(metadata["labels"]) == ["volcano.sh/createdByJobTemplate"]
    assert len(metadata["annotations"]) == 2


def test_status_has_phases_job_lists_and_histories() -> None:
    of = flow(step("a"), step("b", "a"))
    assert after(of, next_step(FlowView(of, [], TEMPLATES)))["state"]["phase"] == "Pending"
    jobs = [made(of, "a", "Running")]
    of["status"] = after(of, next_step(FlowView(of, jobs, TEMPLATES)))
    assert of["status"]["state"]["phase"] == "Running"
    assert of["status"]["runningJobs"] == ["f-a"]
    jobs = [made(of, "a", "Completed", runningDuration="2m0s", retryCount=1)]
    of["status"] = after(of, next_step(FlowView(of, jobs, TEMPLATES)))
    (history,) = of["status"]["jobStatusList"]
    assert (history["endTimestamp"], history["restartCount"]) == ("2026-01-01T00:02:00Z", 1)
    assert [each["state"] for each in history["runningHistories"]] == ["Running", "Completed"]
    assert of["status"]["runningJobs"] == []
    jobs += [made(of, "b", "Completed")]
    of["status"] = after(of, next_step(FlowView(of, jobs, TEMPLATES)))
    assert of["status"]["state"]["phase"] == "Succeed"


def test_a_failed_job_fails_the_flow_and_nothing_more_starts() -> None:
    of = flow(step("a"), step("b", "a"))
    of["status"] = after(of, next_step(FlowView(of, [made(of, "a", "Failed")], TEMPLATES)))
    assert of["status"]["state"]["phase"] == "Failed"
    assert created(next_step(FlowView(of, [made(of, "a", "Completed")], TEMPLATES))) == []


def test_jobs_of_a_succeeded_flow_are_deleted_by_retain_policy_delete() -> None:
    of = flow(step("a"), jobRetainPolicy="delete")
    of["status"] = {"state": {"phase": "Succeed"}}
    jobs = [made(of, "a", "Completed")]
    assert [DeleteJob(jobs[0])] == next_step(FlowView(of, jobs, TEMPLATES))
    of["spec"]["jobRetainPolicy"] = "retain"
    assert created(next_step(FlowView(of, jobs, TEMPLATES))) == []


def test_missing_template_emits_an_event_and_the_flow_waits() -> None:
    effects = next_step(FlowView(flow(step("a")), [], {}))
    (event,) = [each for each in effects if isinstance(each, EmitEvent)]
    assert "JobTemplate a does not exist" in event.message


def test_a_patch_changes_fields_and_tasks_by_name() -> None:
    spec: Object = {"queue": "q", "maxRetry": 1, "tasks": [task("x", 1), task("y", 1)]}
    patch = {"queue": "r", "tasks": [{"name": "y", "replicas": 5}]}
    found = patched_job_spec(spec, patch)
    assert (found["queue"], found["maxRetry"]) == ("r", 1)
    assert [(each["name"], each["replicas"]) for each in found["tasks"]] == [("x", 1), ("y", 5)]
    assert spec["tasks"][1]["template"] == found["tasks"][1]["template"]


def test_task_status_probe_starts_the_next_job_while_its_target_runs() -> None:
    probe = {"taskStatusList": [{"taskName": "worker", "phase": "Running"}]}
    of = flow(step("a"), step("b", "a", probe=probe))
    waiting = made(of, "a", "Running", taskStatusCount={"worker": {"phase": {"Running": 1}}})
    assert created(next_step(FlowView(of, [waiting], TEMPLATES))) == []
    ready = made(of, "a", "Running", taskStatusCount={"worker": {"phase": {"Running": 2}}})
    assert created(next_step(FlowView(of, [ready], TEMPLATES))) == ["f-b"]


def test_failing_probes_are_repeated_until_they_succeed() -> None:
    probe = {
        "httpGetList": [{"taskName": "worker", "path": "/ok", "port": 80}],
        "tcpSocketList": [{"taskName": "worker", "port": 81}],
    }
    of = flow(step("a"), step("b", "a", probe=probe))
    jobs = [made(of, "a", "Running")]
    probes = all_probes(FlowView(of, jobs, TEMPLATES))
    want_probes = [Probe("http", "f-a", "worker", 80, "/ok"), Probe("tcp", "f-a", "worker", 81)]
    assert want_probes == probes
    waiting = next_step(FlowView(of, jobs, TEMPLATES, {probes[0]: True, probes[1]: False}))
    assert created(waiting) == []
    assert any(isinstance(each, RequeueAfter) for each in waiting)
    ready = next_step(FlowView(of, jobs, TEMPLATES, dict.fromkeys(probes, True)))
    assert created(ready) == ["f-b"]


async def test_tcp_and_http_probes_succeed_only_at_good_servers() -> None:
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.read(1000))
        code = b"200 OK" if b"/ok" in seen[-1] else b"500 No"
        writer.write(b"HTTP/1.1 " + code + b"\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        good = Probe("http", "j", "t", port, "/ok", ("X-Me", "you"))
        assert await probe_succeeds(good, "127.0.0.1")
        assert b"X-Me: you" in seen[-1]
        assert not await probe_succeeds(Probe("http", "j", "t", port, "/bad"), "127.0.0.1")
        assert await probe_succeeds(Probe("tcp", "j", "t", port), "127.0.0.1")
        assert not await probe_succeeds(Probe("http", "j", "t", port, "/a\r\nEvil: 1"), "127.0.0.1")
    assert not await probe_succeeds(Probe("tcp", "j", "t", port), "127.0.0.1")


async def test_flow_completes_even_if_a_template_appears_late(cluster: Cluster) -> None:
    of = flow(step("a"), step("b", "a", patch={"jobSpec": {"maxRetry": 7}}))
    del of["status"], of["metadata"]["uid"]
    await cluster.client.create(JOB_TEMPLATES, template("a"))
    await cluster.client.create(JOB_FLOWS, of)
    for name in ("f-a", "f-b"):
        await cluster.has_pods(2, "Pending")
        await cluster.run()
        await cluster.reaches("Running", name)
        await cluster.succeed()
        await cluster.reaches("Completed", name)
        if name == "f-a":
            await cluster.settle()
            await cluster.client.create(JOB_TEMPLATES, template("b"))
    assert (await cluster.job("f-b"))["spec"]["maxRetry"] == 7

    async def succeeded() -> bool:
        found = await cluster.client.get(JOB_FLOWS, "f", namespace="default")
        return bool(found["status"]["state"]["phase"] == "Succeed")

    await cluster.until(succeeded, "the flow succeeds")

    async def listed() -> bool:
        found = await cluster.client.get(JOB_TEMPLATES, "a", namespace="default")
        return (found.get("status") or {}).get("jobDependsOnList") == ["f-a"]

    await cluster.until(listed, "the template lists its job")
    await cluster.client.delete(JOBS, "f-a", namespace="default")

    async def unlisted() -> bool:
        found = await cluster.client.get(JOB_TEMPLATES, "a", namespace="default")
        return not found["status"]["jobDependsOnList"]

    await cluster.until(unlisted, "the template no longer lists its job")


def test_a_flow_that_waits_for_a_template_has_no_status_yet() -> None:
    """Its creator updates it next, and must not meet a conflict with our first status."""
    flow = {
        "metadata": {"name": "f", "namespace": "default", "uid": "u"},
        "spec": {"flows": [{"name": "a"}]},
    }
    effects = next_step(FlowView(flow))
    assert effects
    assert not any(isinstance(effect, SetStatus) for effect in effects)

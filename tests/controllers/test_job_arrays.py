"""Job arrays: names and variables of pods, parallelism, retries of failed indices."""

from __future__ import annotations

from typing import Any

from hekla.api import wellknown
from hekla.controllers.job.effects import CreatePod, DeletePod, Effect, PatchJob, SetStatus
from hekla.controllers.job.pods import PodMaker
from hekla.controllers.job.sync import next_step
from hekla.controllers.job.view import JobView
from hekla.units.objects import Object
from tests.controllers.builders import NOW, group, job, pod, recorded, task


def array(indices: str, count: int, **marks: str) -> Object:
    """Return a running array; `parallelism="2"` sets the annotation."""
    annotations = {f"hekla.io/array-{key}": value for key, value in marks.items()}
    return job(
        "sweep",
        tasks=[task(replicas=count, minAvailable=1)],
        minAvailable=1,
        minSuccess=count,
        annotations={wellknown.ARRAY_INDICES: indices, **annotations},
        status={"state": {"phase": "Running"}},
    )


def step(of: Object, pods: list[Object]) -> list[Effect]:
    return next_step(JobView(of, NOW, group=group(of, "Running"), pods=pods))


def created(effects: list[Effect]) -> list[str]:
    return [each.body["metadata"]["name"] for each in effects if isinstance(each, CreatePod)]


def patched(of: Object, effects: list[Effect]) -> Object:
    """Return the job with the annotations that an effect patches."""
    [patch] = [each.patch for each in effects if isinstance(each, PatchJob)]
    marks = {**of["metadata"]["annotations"], **patch["metadata"]["annotations"]}
    return {**of, "metadata": {**of["metadata"], "annotations": marks}}


def test_pods_are_named_by_their_array_index() -> None:
    assert created(step(array("3,7-9", 4), [])) == [f"sweep-worker-{n}" for n in (3, 7, 8, 9)]


def test_pod_has_its_index_in_label_annotation_and_variables() -> None:
    of = array("5-9:2", 3)
    of["spec"]["tasks"][0]["template"]["spec"]["initContainers"] = [{"name": "i", "image": "host"}]
    body = PodMaker(of).pod(of["spec"]["tasks"][0], 1)
    assert body["metadata"]["labels"][wellknown.ARRAY_INDEX] == "7"
    assert body["metadata"]["annotations"][wellknown.ARRAY_INDEX] == "7"
    for container in body["spec"]["containers"] + body["spec"]["initContainers"]:
        values = {each["name"]: each["value"] for each in container["env"]}
        assert values == {
            "HEKLA_ARRAY_INDEX": "7",
            "SLURM_ARRAY_TASK_ID": "7",
            "SLURM_ARRAY_TASK_COUNT": "3",
            "SLURM_ARRAY_TASK_MIN": "5",
            "SLURM_ARRAY_TASK_MAX": "9",
            "SLURM_ARRAY_JOB_ID": "sweep",
            "JOB_COMPLETION_INDEX": "7",
        }
    assert "env" not in of["spec"]["tasks"][0]["template"]["spec"]["containers"][0]


def test_variables_of_the_template_win_and_can_refer_to_the_index() -> None:
    of = array("0-1", 2)
    own = [
        {"name": "SLURM_ARRAY_JOB_ID", "value": "mine"},
        {"name": "OUT", "value": "out-$(HEKLA_ARRAY_INDEX)"},
    ]
    of["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["env"] = own
    [container] = PodMaker(of).pod(of["spec"]["tasks"][0], 0)["spec"]["containers"]
    names = [each["name"] for each in container["env"]]
    assert names.index("HEKLA_ARRAY_INDEX") < names.index("OUT")
    assert container["env"][-2:] == own
    assert names.count("SLURM_ARRAY_JOB_ID") == 1


def test_only_so_many_pods_exist_unfinished_at_a_time() -> None:
    of = array("0-9", 10, parallelism="3")
    assert created(step(of, [])) == [f"sweep-worker-{n}" for n in (0, 1, 2)]
    pods = [
        pod(of, "worker", 0, "Running"),
        pod(of, "worker", 1, "Succeeded"),
        pod(of, "worker", 2, "Pending"),
    ]
    assert created(step(of, pods)) == ["sweep-worker-3"]
    assert created(step(of, [*pods, pod(of, "worker", 3, "Running")])) == []


def test_pod_that_is_being_deleted_keeps_its_slot_until_it_is_gone() -> None:
    of = array("0-9", 10, parallelism="1")
    assert created(step(of, [pod(of, "worker", 0, "Running", deleting=True)])) == []
    assert created(step(of, [])) == ["sweep-worker-0"]


def test_deleted_pod_returns_before_the_next_index_starts() -> None:
    of = array("0-9", 10, parallelism="2")
    pods = [pod(of, "worker", 0, "Succeeded"), pod(of, "worker", 2, "Running")]
    assert created(step(of, pods)) == ["sweep-worker-1"]


def test_lowered_parallelism_deletes_no_pod() -> None:
    of = array("0-9", 10, parallelism="1")
    effects = step(of, [pod(of, "worker", n, "Running") for n in range(4)])
    assert not [each for each in effects if isinstance(each, (CreatePod, DeletePod))]


def phase(effects: list[Effect]) -> str:
    [found] = [e.patch["state"]["phase"] for e in effects if isinstance(e, SetStatus)]
    return str(found)


def test_array_completes_only_if_all_indices_succeeded() -> None:
    of = array("0-2", 3)
    done = [pod(of, "worker", n, "Succeeded") for n in range(3)]
    assert phase(step(of, done)) == "Completed"
    assert phase(step(of, [*done[:2], pod(of, "worker", 2, "Failed", exit_code=1)])) == "Failed"


def test_failed_index_does_not_stop_the_others() -> None:
    of = array("0-3", 4, parallelism="1")
    pods = [pod(of, "worker", 0, "Failed", exit_code=1)]
    effects = step(recorded(of, pods), pods)
    assert created(effects) == ["sweep-worker-1"]
    assert not [each for each in effects if isinstance(each, DeletePod)]


def test_failed_index_is_retried_after_the_retry_is_recorded() -> None:
    of = array("0-2", 3, retries="1")
    pods: list[Object] = [
        pod(of, "worker", 0, "Succeeded"),
        pod(of, "worker", 1, "Failed", exit_code=1),
        pod(of, "worker", 2, "Failed", exit_code=9),
    ]
    first = step(of, pods)
    of = patched(of, first)
    assert len(first) == 1, "nothing else before the record is stored"
    assert of["metadata"]["annotations"][wellknown.ARRAY_RETRIED] == '{"1": "1-2"}'
    second = step(of, pods)
    deleted = [e.pod["metadata"]["name"] for e in second if isinstance(e, DeletePod)]
    assert deleted == ["sweep-worker-1", "sweep-worker-2"]
    assert not [e for e in second if isinstance(e, SetStatus) and "state" in e.patch]
    third = step(of, pods[:1])
    assert created(third) == ["sweep-worker-1", "sweep-worker-2"]
    bodies: list[Any] = [each.body for each in third if isinstance(each, CreatePod)]
    assert [b["metadata"]["annotations"][wellknown.ARRAY_ATTEMPT] for b in bodies] == ["1", "1"]


def test_retry_comes_before_the_next_index() -> None:
    of = array("0-9", 10, parallelism="1", retries="1", retried='{"1": "0"}')
    first: Object = array("0-9", 10)
    failed = pod(first, "worker", 0, "Failed", exit_code=1)
    assert created(step(of, [failed])) == []
    assert created(step(of, [pod(first, "worker", 0, "Failed", deleting=True)])) == []
    assert created(step(of, [])) == ["sweep-worker-0"]


def test_index_that_fails_again_fails_the_job_when_its_retries_are_used() -> None:
    of = array("0-1", 2, retries="1", retried='{"1": "1"}')
    pods = [pod(of, "worker", 0, "Succeeded"), pod(of, "worker", 1, "Failed", exit_code=1)]
    assert phase(step(of, pods)) == "Failed"


def test_record_that_is_damaged_counts_as_no_retries() -> None:
    for text in ("nonsense", "[]", '{"1": "x"}', '{"x": "1"}'):
        of = array("0-1", 2, retries="1", retried=text)
        effects = step(of, [pod(of, "worker", 1, "Failed", exit_code=1)])
        marks = patched(of, effects)["metadata"]["annotations"]
        assert marks[wellknown.ARRAY_RETRIED] == '{"1": "1"}'


def test_annotations_that_contradict_the_spec_make_a_plain_job() -> None:
    of = array("0-99", 2, parallelism="1")
    assert created(step(of, [])) == ["sweep-worker-0", "sweep-worker-1"]

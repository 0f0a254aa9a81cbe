"""Job arrays: the syntax of indices, and the admission of the annotations."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.api import arrays, volcano, wellknown
from hekla.api.arrays import ArrayError, ArraySpec
from hekla.units.objects import Object
from tests.api.steps import steps
from tests.api.test_volcano_jobs import Cluster, job, task

GOOD: dict[str, tuple[int, ...]] = {
    "7": (7,),
    "0-3": (0, 1, 2, 3),
    "1,3,5-9:2": (1, 3, 5, 7, 9),
    "3,1,1-3": (1, 2, 3),
}
WRONG = {
    "": "no indices",
    "a": "not an index or a range",
    "1-": "not an index or a range",
    "-5": "not an index or a range",
    "9-3": "ends before it starts; write 3-9",
    "0-9:0": "step 0",
    "0-99999999": "larger than",
    "0-200000": "more than 100000 indices",
    "1,,2": "not an index or a range",
    "1" * 70_000: "characters",
    "٣": "not an index or a range",
}


@pytest.mark.parametrize(("text", "want"), GOOD.items())
def test_indices_are_written_as_for_sbatch(text: str, want: tuple[int, ...]) -> None:
    assert arrays.expand(text) == want


@pytest.mark.parametrize(("text", "want"), WRONG.items(), ids=range(len(WRONG)))
def test_wrong_indices_are_refused_with_the_reason(text: str, want: str) -> None:
    with pytest.raises(ArrayError, match=want):
        arrays.expand(text)


@given(st.sets(st.integers(0, 200), min_size=1))
def test_compressed_indices_expand_to_the_same(indices: set[int]) -> None:
    assert arrays.expand(arrays.compress(indices)) == tuple(sorted(indices))


def test_compressed_indices_are_bounded_and_count_the_rest() -> None:
    assert arrays.compress([3, 7, 8, 9]) == "3,7-9"
    assert arrays.compress(range(0, 100, 2), limit=2) == "0,2,… and 48 more"
    assert arrays.compress([]) == ""


def test_parallelism_follows_the_indices_after_a_percent_sign() -> None:
    assert arrays.parse("0-99%10") == ArraySpec("0-99", 10)
    assert arrays.parse("0-99") == ArraySpec("0-99")
    for wrong in ("0-9%", "0-9%0", "0-9%x", "0-9%-1", "0-9%1.5"):
        with pytest.raises(ArrayError, match="positive number"):
            arrays.parse(wrong)


def test_ranges_that_repeat_cost_no_time() -> None:
    text = ",".join(["0-99998"] * 5_000)

    def expand() -> None:
        with pytest.raises(ArrayError, match="more than"):
            arrays.expand(text)

    assert steps(expand) < 1_000


def array(text: str = "0-3", *, spec: Object | None = None, **annotations: str) -> Object:
    """Return a job with array annotations; `parallelism="2"` sets `hekla.io/array-parallelism`."""
    made = job(task_without_replicas(), **(spec or {}))
    marks = {f"hekla.io/array-{key}": value for key, value in annotations.items()}
    made["metadata"]["annotations"] = {wellknown.ARRAY_INDICES: text, **marks}
    return made


def task_without_replicas(**more: Any) -> Object:
    made = task(**more)
    del made["replicas"]
    return made


def errors(of: Object, old: Object | None = None) -> list[str]:
    view = Cluster()
    if old is None:
        volcano.default(of, view)
    return [str(e) for e in volcano.check("update" if old else "create", of, old, view)]


def test_array_gets_a_replica_for_each_index_and_is_no_gang() -> None:
    made = array("1,3,5-9:2", parallelism="2", retries="1")
    assert errors(made) == []
    spec = made["spec"]
    assert (spec["tasks"][0]["replicas"], spec["tasks"][0]["minAvailable"]) == (5, 1)
    assert (spec["minAvailable"], spec["minSuccess"]) == (1, 5)


REFUSED: dict[str, tuple[Object, str]] = {
    "indices that are none": (array("x"), "not an index or a range"),
    "a parallelism of zero": (array(parallelism="0"), "not a positive number"),
    "a parallelism that is no number": (array(parallelism="many"), "not a positive number"),
    "retries that are no number": (array(retries="-1"), "must be a number from 0 to 100"),
    "too many indices with retries": (array("0-10000", retries="1"), "has at most 10000 indices"),
    "retries and a policy for failed pods": (
        array(retries="1", spec={"policies": [{"event": "PodFailed", "action": "RestartJob"}]}),
        "keep the retries or the policies",
    ),
    "a gang": (array(spec={"minAvailable": 2}), "not as a gang"),
    "pods that reach each other": (array(spec={"plugins": {"svc": []}}), "at the same time"),
    "a name that is too long for the last index": (
        {**array("4000000"), "metadata": {**array("4000000")["metadata"], "name": "x" * 55}},
        "the pod of index 4000000 would be called",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_array_is_refused_with(case: str) -> None:
    made, want = REFUSED[case]
    assert want in "; ".join(errors(made))


def test_replicas_that_contradict_the_indices_are_refused() -> None:
    made = array("0-3")
    made["spec"]["tasks"][0]["replicas"] = 7
    assert "the array has 4 indices" in "; ".join(errors(made))


def test_parallelism_without_indices_is_refused() -> None:
    made = job()
    made["metadata"]["annotations"] = {wellknown.ARRAY_PARALLELISM: "3"}
    assert "it needs hekla.io/array-indices" in "; ".join(errors(made))


def test_two_tasks_with_indices_are_refused() -> None:
    made = job(task("a"), task("b"))
    made["metadata"]["annotations"] = {wellknown.ARRAY_INDICES: "0-3"}
    assert "has one task" in "; ".join(errors(made))


def test_parallelism_of_a_stored_array_changes_and_its_indices_do_not() -> None:
    old = array("0-3")
    assert errors(old) == []
    assert errors(_with(old, parallelism="9"), old) == []
    assert "positive number" in "; ".join(errors(_with(old, parallelism="0"), old))
    assert "cannot change" in "; ".join(errors(_with(old, indices="0-4"), old))
    scaled = _with(old)
    scaled["spec"] = {**old["spec"], "tasks": [{**old["spec"]["tasks"][0], "replicas": 5}]}
    assert "the array has 4 indices" in "; ".join(errors(scaled, old))


def _with(of: Object, **annotations: str) -> Object:
    marks = {f"hekla.io/array-{key}": value for key, value in annotations.items()}
    metadata = {**of["metadata"], "annotations": {**of["metadata"]["annotations"], **marks}}
    return {**of, "metadata": metadata}


def test_retry_of_some_indices_sees_the_size_of_the_whole_array() -> None:
    made = array("3,7", whole="0-9")
    assert errors(made) == []
    found = arrays.array_of(made)
    assert found is not None
    want = {"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_COUNT": "10", "SLURM_ARRAY_TASK_MAX": "9"}
    assert want.items() <= arrays.environment("sweep", found, 7).items()


def test_array_in_a_cron_job_is_checked_when_the_cron_job_is_created() -> None:
    def cron(indices: str) -> Object:
        template = {
            "metadata": {"annotations": {wellknown.ARRAY_INDICES: indices}},
            "spec": {"tasks": [task_without_replicas()]},
        }
        return {
            "apiVersion": wellknown.BATCH_API,
            "kind": "CronJob",
            "metadata": {"name": "nightly"},
            "spec": {"schedule": "@daily", "jobTemplate": template},
        }

    assert errors(cron("0-9")) == []
    [error] = errors(cron("9-0"))
    assert error.startswith("spec.jobTemplate.metadata.annotations[hekla.io/array-indices]")

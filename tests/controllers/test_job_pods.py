"""Pods and PodGroups of jobs, in the form that Volcano's clients read."""

import pytest

from hekla.controllers.job.group import min_resources, pod_group, spec_patch
from hekla.controllers.job.pods import PodMaker
from hekla.units.objects import Object

from .builders import job, task


def test_pod_has_the_labels_and_annotations_that_clients_read() -> None:
    of = job(status={"version": 2, "retryCount": 1})
    pod = PodMaker(of).pod(of["spec"]["tasks"][0], 1)
    assert pod["metadata"]["labels"] == {
        "volcano.sh/task-index": "1",
        "volcano.sh/task-spec": "worker",
        "volcano.sh/job-name": "train",
        "volcano.sh/job-namespace": "default",
        "volcano.sh/queue-name": "default",
    }
    assert pod["metadata"]["annotations"] == {
        "volcano.sh/task-index": "1",
        "volcano.sh/task-spec": "worker",
        "scheduling.k8s.io/group-name": "train-uid-train",
        "volcano.sh/job-name": "train",
        "volcano.sh/queue-name": "default",
        "volcano.sh/job-version": "2",
        "volcano.sh/template-uid": "train-worker",
        "volcano.sh/job-retry-count": "1",
    }
    (owner,) = pod["metadata"]["ownerReferences"]
    assert (
        owner["controller"],
        owner["blockOwnerDeletion"],
        owner["uid"],
    ) == (True, True, "uid-train")
    assert pod["spec"]["schedulerName"] == "volcano"


def test_scheduling_annotations_of_the_job_are_copied_to_its_pods() -> None:
    hints = {
        "volcano.sh/preemptable": "true",
        "volcano.sh/cooldown-time": "10s",
        "volcano.sh/revocable-zone": "*",
        "volcano.sh/jdb-min-available": "1",
        "volcano.sh/jdb-max-unavailable": "1",
    }
    of = job(annotations=hints, priorityClassName="high")
    of["metadata"]["labels"] = {"volcano.sh/preemptable": "true", "mine": "stays"}
    of["spec"]["tasks"][0]["topologyPolicy"] = "restricted"
    pod = PodMaker(of).pod(of["spec"]["tasks"][0], 0)
    annotations = pod["metadata"]["annotations"]
    assert pod["metadata"]["labels"]["volcano.sh/preemptable"] == "true"
    assert "mine" not in pod["metadata"]["labels"]
    assert annotations["volcano.sh/numa-topology-policy"] == "restricted"
    assert annotations["volcano.sh/jdb-min-available"] == "1"
    assert "volcano.sh/jdb-max-unavailable" not in annotations
    assert pod["spec"]["priorityClassName"] == "high"


def test_partitions_are_labelled() -> None:
    parts = {"totalPartitions": 2, "partitionSize": 2}
    of = job(tasks=[task("worker", 4, partitionPolicy=parts)])
    made = [PodMaker(of).pod(of["spec"]["tasks"][0], i)["metadata"]["labels"] for i in range(4)]
    assert [each["volcano.sh/partition-id"] for each in made] == ["0", "0", "1", "1"]


def test_a_claim_that_is_named_twice_is_mounted_once() -> None:
    volumes = [
        {"mountPath": "/a", "volumeClaimName": "c"},
        {"mountPath": "/b", "volumeClaimName": "c"},
    ]
    of = job(volumes=volumes)
    pod = PodMaker(of).pod(of["spec"]["tasks"][0], 0)
    assert [each["mountPath"] for each in pod["spec"]["containers"][0]["volumeMounts"]] == ["/a"]


def test_group_has_the_minimum_of_the_gang() -> None:
    parts = {"totalPartitions": 2, "partitionSize": 2, "minPartitions": 1,
             "networkTopology": {"mode": "soft", "highestTierName": "rack"}}  # fmt: skip
    tasks = [task("ps", 1), task("worker", 4, minAvailable=2, partitionPolicy=parts)]
    of = job(tasks=tasks, networkTopology={"highestTierAllowed": 2}, priorityClassName="high")
    of["metadata"]["labels"] = {"team": "a"}
    group = pod_group(of, tasks, {})
    assert group["metadata"]["name"] == "train-uid-train"
    assert group["metadata"]["labels"] == {"team": "a"}
    spec = group["spec"]
    assert (spec["minMember"], spec["minTaskMember"]) == (3, {"ps": 1, "worker": 2})
    assert (spec["queue"], spec["priorityClassName"]) == ("default", "high")
    assert spec["networkTopology"] == {"mode": "hard", "highestTierAllowed": 2}
    assert spec["subGroupPolicy"] == [
        {
            "name": "worker",
            "subGroupSize": 2,
            "minSubGroups": 1,
            "labelSelector": {"matchLabels": {"volcano.sh/task-spec": "worker"}},
            "matchLabelKeys": ["volcano.sh/partition-id"],
            "networkTopology": {"mode": "soft", "highestTierName": "rack"},
        }
    ]


def test_group_follows_its_job_and_keeps_fields_of_other_writers() -> None:
    now = {"spec": {"minMember": 2, "queue": "q", "minTaskMember": {"a": 1, "gone": 1}}}
    wanted = {"minMember": 3, "minTaskMember": {"a": 2}}
    assert spec_patch(now, wanted) == {
        "spec": {"minMember": 3, "minTaskMember": {"a": 2, "gone": None}}
    }
    assert spec_patch({"spec": {**wanted, "queue": "q"}}, wanted) is None


def asking(name: str, replicas: int, least: int | None, cpu: str, priority: str = "") -> Object:
    one = task(name, replicas, minAvailable=least)
    one["template"]["spec"]["containers"][0]["resources"]["requests"] = {"cpu": cpu}
    if priority:
        one["template"]["spec"]["priorityClassName"] = priority
    return one


MINIMUM: dict[str, tuple[int, list[tuple[int, int | None, str]], str]] = {
    "less than the sum of the tasks: pods in order": (2, [(2, 2, "1"), (2, 2, "10")], "2"),
    "the minimum of the tasks first": (3, [(4, 1, "1"), (2, 2, "10")], "21"),
    "then the remaining replicas": (4, [(4, 1, "1"), (2, 2, "10")], "22"),
    "tasks without a minimum fill up": (3, [(1, 1, "1"), (2, None, "10")], "21"),
}


@pytest.mark.parametrize("case", MINIMUM)
def test_min_resources_are_those_of_the_first_min_available_pods(case: str) -> None:
    least, tasks, want_cpu = MINIMUM[case]
    made = [asking(f"t{i}", *each) for i, each in enumerate(tasks)]
    of = job(tasks=made, minAvailable=least)
    found = min_resources(of, made, {})
    assert want_cpu == found["cpu"] == found["requests.cpu"]
    assert str(least) == found["pods"] == found["count/pods"]


def test_high_priority_tasks_count_first_and_devices_under_both_names() -> None:
    made = [asking("low", 2, 2, "1"), asking("high", 2, 2, "10", "urgent")]
    made[1]["template"]["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = "1"
    found = min_resources(job(tasks=made, minAvailable=2), made, {"urgent": 100})
    assert found["cpu"] == "20"
    assert "2" == found["nvidia.com/gpu"] == found["requests.nvidia.com/gpu"]

"""`vcctl jobflow`, `jobtemplate`, `pod`, `podgroup` and `version`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hekla.kube.resources import PODGROUPS, PODS
from hekla.kube.sync_client import SyncClient
from tests.cli.conftest import Run, job

FLOW: dict[str, Any] = {
    "apiVersion": "flow.volcano.sh/v1alpha1",
    "kind": "JobFlow",
    "metadata": {"name": "pipeline", "annotations": {"note": "a --- b"}},
    "spec": {
        "jobRetainPolicy": "delete",
        "flows": [{"name": "a"}, {"name": "b", "dependsOn": {"targets": ["a"]}}],
    },
}
TEMPLATE: dict[str, Any] = {
    "apiVersion": "flow.volcano.sh/v1alpha1",
    "kind": "JobTemplate",
    "metadata": {"name": "step"},
    "spec": job("x")["spec"],
}


def _file(path: Path, *documents: dict[str, Any]) -> str:
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)


@pytest.mark.parametrize(
    ("noun", "document", "header"),
    [("jobflow", FLOW, "Phase"), ("jobtemplate", TEMPLATE, "")],
)
def test_flows_and_templates_are_created_listed_and_deleted(
    vcctl: Run, tmp_path: Path, namespace: str, noun: str, document: dict[str, Any], header: str
) -> None:
    kind, name = document["kind"], document["metadata"]["name"]
    file = _file(tmp_path / "x.yaml", document)
    assert vcctl(noun, "list").out == "No resources found\n"
    done = vcctl(noun, "create", "-f", file)
    assert (done.code, done.out) == (0, f"Created {kind}: {namespace}/{name}\n")
    for verb in (("list",), ("get", "-N", name), ("get", name)):
        lines = vcctl(noun, *verb).lines
        assert re.match(rf"Name {{{len(name)}}}Namespace +{header}", lines[0])
        assert re.match(rf"{name}    {namespace}    ", lines[1])
    told = yaml.safe_load(vcctl(noun, "describe", "-N", name).out)
    assert (told["kind"], told["apiVersion"]) == (kind, document["apiVersion"])
    assert "managedFields" not in told["metadata"]
    assert json.loads(vcctl(noun, "describe", "-N", name, "-o", "json").out)["kind"] == kind
    for args in ((), ("-N", name)):
        done = vcctl(noun, "describe", *args, "-o", "toml")
        assert (done.code, done.out) == (255, "")
        assert done.err.startswith(f"Failed to describe {noun}: Unsupported format: toml\n")
    done = vcctl(noun, "delete", "-N", name)
    assert (done.code, done.out) == (0, f"Deleted {kind}: {namespace}/{name}\n")


def test_failed_document_is_reported_and_skipped_and_the_exit_code_is_255(
    vcctl: Run, tmp_path: Path, namespace: str
) -> None:
    other = {**FLOW, "metadata": {"name": "other"}}
    file = _file(tmp_path / "x.yaml", FLOW, other)
    assert vcctl("jobflow", "create", "-f", _file(tmp_path / "y.yaml", FLOW)).code == 0
    done = vcctl("jobflow", "create", "-f", file)
    assert (done.code, done.out) == (255, f"Created JobFlow: {namespace}/other\n")
    assert done.err.startswith(
        'Failed to create JobFlow: jobflows.flow.volcano.sh "pipeline" already exists\n'
    )
    assert vcctl("jobflow", "create", "-f", file, "--strict").code == 255, "still accepted"
    done = vcctl("jobflow", "delete", "-f", file)
    assert (done.code, done.lines) == (
        0,
        [f"Deleted JobFlow: {namespace}/pipeline", f"Deleted JobFlow: {namespace}/other"],
    )
    done = vcctl("jobflow", "delete", "-f", file)
    assert (done.code, done.out) == (255, "")
    assert done.err.count("Failed to delete JobFlow: ") == 2


def test_describe_of_several_keeps_all_of_them_readable_for_programs(
    vcctl: Run, tmp_path: Path
) -> None:
    other = {**FLOW, "metadata": {"name": "other"}}
    assert vcctl("jobflow", "create", "-f", _file(tmp_path / "x.yaml", FLOW, other)).code == 0
    for args in ((), ("other", "pipeline"), ("-N", "other", "pipeline")):
        documents = list(yaml.safe_load_all(vcctl("jobflow", "describe", *args).out))
        assert [one["metadata"]["name"] for one in documents] == ["other", "pipeline"]
        listed = json.loads(vcctl("jobflow", "describe", *args, "-o", "json").out)
        assert [one["metadata"]["name"] for one in listed["items"]] == ["other", "pipeline"]
    done = vcctl("jobflow", "describe", "gone", "other")
    assert done.code == 255
    assert yaml.safe_load(done.out)["metadata"]["name"] == "other"
    assert '"gone" not found' in done.err
    done = vcctl("jobflow", "delete", "gone", "other", "pipeline")
    assert (done.code, len(done.lines)) == (255, 2)
    assert vcctl("jobflow", "list").out == "No resources found\n"


@pytest.mark.parametrize(
    ("noun", "want"),
    [
        ("jobflow", "jobflow name must be specified"),
        ("jobtemplate", "job template name must be specified"),
    ],
)
def test_get_and_delete_need_a_name(vcctl: Run, noun: str, want: str) -> None:
    for verb in ("get", "delete"):
        done = vcctl(noun, verb)
        assert (done.code, done.out) == (255, "")
        assert done.err.startswith(f"Failed to {verb} {noun}: {want}\n")
    done = vcctl(noun, "get", "-N", "gone")
    assert done.code == 255
    assert '"gone" not found' in done.err


def _pod(name: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {f"volcano.sh/{k}": v for k, v in labels.items()}},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    }


def test_pods_are_those_of_jobs_of_a_job_or_of_a_queue(
    vcctl: Run, admin: SyncClient, namespace: str
) -> None:
    assert vcctl("pod", "list").out == "No resources found\n"
    labels = {"job-name": "train", "queue-name": "ml"}
    admin.create(PODS, _pod("train-worker-0", **labels), namespace=namespace)
    admin.create(PODS, _pod("alone"), namespace=namespace)
    bare = _pod("bare")
    bare["metadata"]["annotations"] = {"scheduling.volcano.sh/queue-name": "ml"}
    admin.create(PODS, bare, namespace=namespace)

    lines = vcctl("pod", "list").lines
    assert lines[0].startswith("Name" + " " * 18 + "Ready" + " " * 8 + "Status")
    row = "train-worker-0        0/1          Pending        0"
    assert lines[1].startswith(row)
    assert len(lines) == 2
    of_the_job = vcctl("pod", "list", "-j", "train").lines
    assert of_the_job[1].startswith(row), "and then its age, which may be a second more by now"
    assert len(of_the_job) == 2
    assert vcctl("pod", "list", "-j", "other").out == "No resources found\n"
    by_queue = [line.split()[0] for line in vcctl("pod", "list", "-q", "ml").lines[1:]]
    assert by_queue == ["bare", "train-worker-0"]
    everywhere = vcctl("pod", "list", "--all-namespaces").lines
    assert re.match(r"Namespace +Name +Ready +Status +Restart +Age", everywhere[0])
    assert any(line.startswith(namespace) for line in everywhere)
    done = vcctl("pod", "list", "-j", "train", "-q", "other")
    assert (done.code, done.out) == (255, "")
    assert done.err.startswith(
        "Failed to list pod: the input vcjob train does not match the queue other\n"
    )
    assert "Node" in vcctl("pod", "list", "-o", "wide").lines[0]


def test_podgroups_are_listed_and_shown_with_their_conditions(
    vcctl: Run, admin: SyncClient, namespace: str
) -> None:
    body = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "gang"},
        "spec": {"queue": "default", "minMember": 4, "minResources": {"cpu": "8"}},
        "status": {
            "phase": "Pending",
            "conditions": [
                {
                    "type": "Unschedulable",
                    "status": "True",
                    "reason": "NotEnoughResources",
                    "message": "4/4 tasks in gang unschedulable",
                    "lastTransitionTime": "2026-01-02T03:04:05Z",
                }
            ],
        },
    }
    admin.create(PODGROUPS, body, namespace=namespace)
    lines = vcctl("podgroup", "list", "--phase", "pending").lines
    assert re.match(r"Name +Phase +MinMember +Running +Succeeded +Failed +Queue +Age", lines[0])
    assert re.match(r"gang +Pending +4 +0 +0 +0 +default", lines[1])
    assert vcctl("podgroup", "list", "--phase", "running").out == "No resources found\n"
    report = vcctl("podgroup", "view", "gang").out
    assert "Min Member:\t4\nMin Resources:\n  cpu:\t8\nPhase:\tPending" in report
    assert "NotEnoughResources: 4/4 tasks in gang unschedulable" in report
    done = vcctl("podgroup", "view", "gag")
    assert (done.code, done.out) == (255, "")
    assert 'did you mean "gang"?' in done.err


def test_version_prints_six_lines_in_volcanos_order(vcctl: Run) -> None:
    done = vcctl("version")
    assert done.code == 0
    assert [line.partition(": ")[0] for line in done.lines] == [
        "API Version",
        "Version",
        "Git SHA",
        "Built At",
        "Go Version",
        "Go OS/Arch",
    ]
    assert done.lines[0] == "API Version: v1alpha1"
    assert done.lines[2] == "Git SHA: Not provided."

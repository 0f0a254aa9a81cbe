"""kubectl patch, edit, replace, label, annotate, scale and set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.apiserver.kubectl.conftest import Kubectl
from tests.apiserver.kubectl.manifests import (
    config_map,
    custom,
    definition,
    deployment,
    pod,
    vcjob,
)


def patch(kubectl: Kubectl, what: str, body: Any, kind: str = "merge", *more: str) -> str:
    return kubectl("patch", *what.split("/"), f"--type={kind}", "-p", json.dumps(body), *more)


def test_a_json_patch_is_exact(kubectl: Kubectl) -> None:
    kubectl.create(config_map("c", a="1", b="2"))
    steps = [
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "replace", "path": "/data/a", "value": "9"},
        {"op": "remove", "path": "/data/b"},
    ]
    assert patch(kubectl, "cm/c", steps, "json") == "configmap/c patched\n"
    assert kubectl.json("get", "cm", "c")["data"] == {"a": "9"}
    said = kubectl.fails("patch", "cm", "c", "--type=json", "-p", json.dumps(steps))
    assert "is invalid" in said


def test_a_merge_patch_removes_with_null(kubectl: Kubectl) -> None:
    kubectl.create(config_map("c", a="1", b="2"))
    patch(kubectl, "cm/c", {"data": {"b": None, "d": "4"}})
    assert kubectl.json("get", "cm", "c")["data"] == {"a": "1", "d": "4"}
    assert patch(kubectl, "cm/c", {"data": {"d": "4"}}) == "configmap/c patched (no change)\n"


def containers(kubectl: Kubectl, name: str) -> dict[str, str]:
    found = kubectl.json("get", "deploy", name)["spec"]["template"]["spec"]["containers"]
    return {container["name"]: container["image"] for container in found}


def template(*items: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"template": {"spec": {"containers": list(items)}}}}


def test_a_strategic_patch_merges_lists_by_key_and_deletes_by_directive(kubectl: Kubectl) -> None:
    kubectl.create(deployment("d"))
    patch(kubectl, "deploy/d", template({"name": "side", "image": "s:1"}), "strategic")
    assert containers(kubectl, "d") == {"side": "s:1", "web": "nginx:1"}
    patch(kubectl, "deploy/d", template({"name": "side", "image": "s:2"}), "strategic")
    assert containers(kubectl, "d") == {"side": "s:2", "web": "nginx:1"}
    patch(kubectl, "deploy/d", template({"name": "side", "$patch": "delete"}), "strategic")
    assert containers(kubectl, "d") == {"web": "nginx:1"}
    patch(
        kubectl,
        "deploy/d",
        template({"name": "only", "image": "o"}, {"$patch": "replace"}),
        "strategic",
    )
    assert containers(kubectl, "d") == {"only": "o"}


def test_custom_kinds_take_no_strategic_patch(kubectl: Kubectl) -> None:
    kubectl.create(vcjob("train"))
    said = kubectl.fails("patch", "vcjob", "train", "--type=strategic", "-p", '{"spec":{}}')
    assert "application/strategic-merge-patch+json" in said


def test_status_is_patched_only_through_the_subresource(kubectl: Kubectl) -> None:
    kubectl.create(pod("p"))
    status = {"status": {"phase": "Running"}}
    patch(kubectl, "pod/p", status, "strategic")
    assert kubectl.json("get", "pod", "p")["status"]["phase"] == "Pending"
    patch(kubectl, "pod/p", status, "strategic", "--subresource=status")
    assert kubectl.json("get", "pod", "p")["status"]["phase"] == "Running"
    both = {
        "metadata": {"labels": {"x": "y"}},
        "spec": {"nodeName": "n"},
        "status": {"phase": "Failed"},
    }
    patch(kubectl, "pod/p", both, "strategic", "--subresource=status")
    found = kubectl.json("get", "pod", "p")
    assert found["status"]["phase"] == "Failed"
    assert "nodeName" not in found["spec"]


def test_conditions_are_merged_by_type(kubectl: Kubectl) -> None:
    kubectl.create(pod("p"))
    for kind, state in (("Ready", "False"), ("Initialized", "True"), ("Ready", "True")):
        condition = {"status": {"conditions": [{"type": kind, "status": state}]}}
        patch(kubectl, "pod/p", condition, "strategic", "--subresource=status")
    found = kubectl.json("get", "pod", "p")["status"]["conditions"]
    assert {c["type"]: c["status"] for c in found} == {"Ready": "True", "Initialized": "True"}


def test_labels_are_set_overwritten_and_removed(kubectl: Kubectl) -> None:
    kubectl.create(pod("p"))
    assert kubectl("label", "pod", "p", "tier=front") == "pod/p labeled\n"
    said = kubectl.fails("label", "pod", "p", "tier=back")
    assert "already has a value (front), and --overwrite is false" in said
    kubectl("label", "pod", "p", "tier=back", "--overwrite")
    assert kubectl.json("get", "pod", "p")["metadata"]["labels"] == {"tier": "back"}
    assert kubectl("label", "pod", "p", "tier-") == "pod/p unlabeled\n"
    assert "labels" not in kubectl.json("get", "pod", "p")["metadata"]
    said = kubectl.fails("label", "pod", "p", "bad key=x")
    assert "invalid" in said


def test_annotations_are_set_overwritten_and_removed(kubectl: Kubectl) -> None:
    kubectl.create(pod("p"))
    assert kubectl("annotate", "pod", "p", "why=fun") == "pod/p annotated\n"
    kubectl("annotate", "--overwrite", "pods", "--all", "why=work")
    assert kubectl.json("get", "pod", "p")["metadata"]["annotations"] == {"why": "work"}
    kubectl("annotate", "pod", "p", "why-")
    assert "annotations" not in kubectl.json("get", "pod", "p")["metadata"]


def test_replace_replaces_the_whole_object(kubectl: Kubectl) -> None:
    kubectl.create(config_map("c", a="1", b="2"))
    said = kubectl("replace", "-f", "-", input=config_map("c", z="26"))
    assert said == "configmap/c replaced\n"
    found = kubectl.json("get", "cm", "c")
    assert found["data"] == {"z": "26"}
    stale = {**found, "metadata": {**found["metadata"], "resourceVersion": "1"}}
    said = kubectl.fails("replace", "-f", "-", input=stale)
    assert "the object has been modified; please apply your changes to the latest version" in said
    assert "not found" in kubectl.fails("replace", "-f", "-", input=config_map("ghost"))


def test_forced_replace_recreates_the_object(kubectl: Kubectl) -> None:
    kubectl.create(pod("p"))
    uid = kubectl.json("get", "pod", "p")["metadata"]["uid"]
    kubectl("replace", "--force", "-f", "-", input=pod("p"))
    assert kubectl.json("get", "pod", "p")["metadata"]["uid"] != uid


def editor(path: Path, script: str) -> dict[str, str]:
    """An editor that changes the file it is given by a sed script."""
    program = path / "editor"
    program.write_text(f'#!/bin/sh\nsed -i -e "{script}" "$1"\n')
    program.chmod(0o700)
    return {"KUBE_EDITOR": str(program)}


def test_edit_sends_what_the_editor_changed(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl.create(config_map("c", colour="red"), vcjob("train", priorityClassName="low"))
    said = kubectl("edit", "cm", "c", env=editor(tmp_path, "s/red/blue/"))
    assert said == "configmap/c edited\n"
    assert kubectl.json("get", "cm", "c")["data"] == {"colour": "blue"}
    kubectl("edit", "vcjob", "train", env=editor(tmp_path, "s/Name: low/Name: high/"))
    assert kubectl.json("get", "vcjob", "train")["spec"]["priorityClassName"] == "high"


def test_edit_without_a_change_is_cancelled(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl.create(config_map("c"))
    done = kubectl.run("edit", "cm", "c", env=editor(tmp_path, ""))
    assert "Edit cancelled, no changes made" in done.stderr


def test_scale_a_deployment(kubectl: Kubectl) -> None:
    kubectl.create(deployment("d"))
    assert kubectl("scale", "deploy", "d", "--replicas=4") == "deployment.apps/d scaled\n"
    assert kubectl.json("get", "deploy", "d")["spec"]["replicas"] == 4
    said = kubectl.fails("scale", "deploy", "d", "--current-replicas=1", "--replicas=2")
    assert "Expected replicas to be 1, was 4" in said


def test_scale_a_custom_kind_with_scale_subresource(kubectl: Kubectl, unique: str) -> None:
    plural = f"{unique}farms"
    paths = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}
    kubectl.create(definition(plural, subresources={"scale": paths, "status": {}}))
    kubectl.create(custom(plural, "f", spec={"size": 1}))
    kubectl("scale", f"{plural}.{plural}.example.com/f", "--replicas=7")
    assert kubectl.json("get", plural, "f")["spec"] == {"size": 7}
    (row,) = kubectl.rows("get", plural, "f", "--subresource=scale")
    assert (row["DESIRED"], row["AVAILABLE"]) == ("7", "0")


def test_set_changes_parts_of_a_template(kubectl: Kubectl) -> None:
    kubectl.create(deployment("d"))
    assert kubectl("set", "image", "deploy/d", "web=nginx:9") == "deployment.apps/d image updated\n"
    assert containers(kubectl, "d") == {"web": "nginx:9"}
    kubectl("set", "env", "deploy/d", "MODE=fast")
    kubectl("set", "resources", "deploy/d", "--limits=cpu=200m,memory=1Gi")
    found = kubectl.json("get", "deploy", "d")["spec"]["template"]["spec"]["containers"][0]
    assert found["env"] == [{"name": "MODE", "value": "fast"}]
    assert found["resources"]["limits"] == {"cpu": "200m", "memory": "1Gi"}


def test_each_spec_change_increments_the_generation(kubectl: Kubectl) -> None:
    kubectl.create(deployment("d"))
    kubectl("label", "deploy", "d", "x=y")
    assert kubectl.json("get", "deploy", "d")["metadata"]["generation"] == 1
    kubectl("scale", "deploy", "d", "--replicas=3")
    assert kubectl.json("get", "deploy", "d")["metadata"]["generation"] == 2

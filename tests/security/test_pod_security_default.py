"""The default Pod Security level of hekla's server, and Volcano's kinds."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from hekla.api import pod_security
from hekla.apiserver.server import ApiServer, Config
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.errors import Forbidden
from hekla.kube.resources import JOBS, NAMESPACES, PODS
from tests.apiserver.both.conftest import Api

PRIVILEGED = {"containers": [{"name": "a", "image": "x", "securityContext": {"privileged": True}}]}


def pod(namespace: str, spec: dict[str, Any] = PRIVILEGED) -> dict[str, Any]:
    return {"metadata": {"name": "p", "namespace": namespace}, "spec": spec}


def _client(server: ApiServer) -> Client:
    return Client(kubeconfig.load(server.kubeconfig), component="test")


async def test_namespace_without_labels_is_baseline_and_kube_system_is_privileged(
    tmp_path: Path,
) -> None:
    async with ApiServer(Config(tmp_path / "data")) as server, _client(server) as client:
        with pytest.raises(Forbidden, match='violates PodSecurity "baseline:latest": privileged'):
            await client.create(PODS, pod("default"))
        await client.create(PODS, pod("kube-system"))
        tight = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}
        await client.patch(NAMESPACES, "kube-system", tight)
        with pytest.raises(Forbidden):
            await client.create(PODS, {**pod("kube-system"), "metadata": {
                "name": "q", "namespace": "kube-system"}})  # fmt: skip


@pytest.mark.parametrize("level", pod_security.LEVELS)
async def test_default_level_is_configurable(tmp_path: Path, level: str) -> None:
    config = Config(tmp_path / "data", pod_security_default=level)
    async with ApiServer(config) as server, _client(server) as client:
        plain = {"containers": [{"name": "a", "image": "x"}]}
        allowed = []
        for name, spec in (("plain", plain), ("privileged", PRIVILEGED)):
            body = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
            try:
                await client.create(PODS, body)
                allowed.append(name)
            except Forbidden:
                pass
        want = {
            "privileged": ["plain", "privileged"],
            "baseline": ["plain"],
            "restricted": [],
        }
        assert allowed == want[level]


def test_unknown_default_level_is_refused() -> None:
    with pytest.raises(ValueError, match="must be one of privileged, baseline, restricted"):
        pod_security.default_policy("strict")


async def test_volcano_job_is_admitted_with_a_warning_that_names_the_task(tmp_path: Path) -> None:
    async with ApiServer(Config(tmp_path / "data")) as server, _client(server) as client:
        task = {"name": "work", "replicas": 1, "template": {"spec": PRIVILEGED}}
        body = {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {"name": "j", "namespace": "default"},
            "spec": {"tasks": [task]},
        }
        await client.create(JOBS, body)
        assert await _warnings(server, body) == [
            'task "work": would violate PodSecurity "baseline:latest": privileged (container "a" '
            "must not set securityContext.privileged=true)"
        ]


async def _warnings(server: ApiServer, body: dict[str, Any]) -> list[str]:
    """Return the warnings of a dry run."""
    api = Api(server.kubeconfig)
    path = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs?dryRun=All"
    again = {**body, "metadata": {**body["metadata"], "name": "again"}}
    answer = await asyncio.to_thread(api.post, path, again)
    assert answer.status == 201
    return [json.loads(f'"{text}"') for text in answer.warnings]

"""Findings of fuzzing as regression tests: rejections that were internal errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hekla.apiserver.server import ApiServer, Config
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.errors import ApiError
from hekla.kube.resources import BATCH_JOBS, CONFIGMAPS, REPLICA_SETS


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with (
        ApiServer(Config(data_dir=tmp_path / "data")) as server,
        Client(kubeconfig.load(server.kubeconfig), component="test") as made,
    ):
        yield made


@pytest.mark.parametrize("metadata", ["a", 5, [], ["x"], True])
async def test_an_apply_with_metadata_of_another_type_is_rejected(
    client: Client, metadata: Any
) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    with pytest.raises(ApiError) as refused:
        await client.patch(
            CONFIGMAPS, "c", body, namespace="default", kind="apply", field_manager="fuzz"
        )
    assert refused.value.status == 400


async def test_a_job_without_a_spec_is_refused(client: Client) -> None:
    with pytest.raises(ApiError) as refused:
        await client.create(BATCH_JOBS, {"metadata": {"name": "j"}}, namespace="default")
    assert refused.value.status == 422


@pytest.mark.parametrize("part", ["metadata", "spec"])
async def test_a_scale_with_fields_of_another_type_is_rejected(client: Client, part: str) -> None:
    template: dict[str, Any] = {"metadata": {"labels": {"a": "b"}}}
    template["spec"] = {"containers": [{"name": "c", "image": "host"}]}
    spec = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    body = {"metadata": {"name": "r"}, "spec": spec}
    await client.create(REPLICA_SETS, body, namespace="default")
    scale = {"kind": "Scale", "apiVersion": "autoscaling/v1", part: 0.5}
    with pytest.raises(ApiError) as refused:
        await client.patch(REPLICA_SETS, "r", scale, namespace="default", subresource="scale")
    assert refused.value.status == 400


@pytest.mark.parametrize("field", ["\x1c«\U00077c5fqR}", 'a"b\\c', "\r\nset-cookie: x"])
async def test_a_warning_about_an_unusual_field_is_a_valid_header(
    client: Client, field: str
) -> None:
    body = {"metadata": {"name": "odd"}, field: [1]}
    made = await client.create(CONFIGMAPS, body, namespace="default")
    assert made["metadata"]["name"] == "odd"

"""What fuzzing has found, each once more: refusals that were internal errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hekla.apiserver.server import ApiServer, Config
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.errors import ApiError
from hekla.kube.resources import BATCH_JOBS, CONFIGMAPS


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with (
        ApiServer(Config(data_dir=tmp_path / "data")) as server,
        Client(kubeconfig.load(server.kubeconfig), component="test") as made,
    ):
        yield made


@pytest.mark.parametrize("metadata", ["a", 5, [], ["x"], True])
async def test_an_apply_whose_metadata_is_no_object_is_refused(
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

"""The scheduler's ConfigMap is checked when it is written, with the line and the reason."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hekla.api import wellknown
from hekla.apiserver.server import ApiServer, Config
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.errors import AlreadyExists, Invalid
from hekla.kube.resources import CONFIGMAPS, NAMESPACES
from hekla.local import configuration_problem
from hekla.scheduler.plugins.discovery import discover

SYSTEM, NAME = wellknown.SYSTEM_NAMESPACE, wellknown.SCHEDULER_CONFIG_MAP
VALID = 'actions: "allocate"\n'
WRONG = 'tiers:\n- plugins:\n  - name: gangg\nactions: "allocate"\n'


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    registry = discover()
    config = Config(
        data_dir=tmp_path / "data",
        scheduler_config_problem=lambda text: configuration_problem(registry, text),
    )
    async with ApiServer(config) as server, Client(kubeconfig.load(server.kubeconfig)) as made:
        for namespace in (SYSTEM, "other"):
            with contextlib.suppress(AlreadyExists):
                await made.create(NAMESPACES, {"metadata": {"name": namespace}})
        yield made


def config_map(text: str, namespace: str = SYSTEM, name: str = NAME) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"metadata": metadata, "data": {wellknown.SCHEDULER_CONFIG_KEY: text}}


async def test_invalid_configuration_is_refused_with_its_line(client: Client) -> None:
    want = r"volcano-scheduler.conf\].*line 3: unknown plugin 'gangg'; did you mean 'gang'"
    with pytest.raises(Invalid, match=want):
        await client.create(CONFIGMAPS, config_map(WRONG))
    await client.create(CONFIGMAPS, config_map(VALID))
    with pytest.raises(Invalid, match=want):
        await client.patch(CONFIGMAPS, NAME, {"data": config_map(WRONG)["data"]}, namespace=SYSTEM)
    found = await client.get(CONFIGMAPS, NAME, namespace=SYSTEM)
    assert found["data"] == config_map(VALID)["data"]


async def test_other_config_maps_are_not_checked(client: Client) -> None:
    await client.create(CONFIGMAPS, config_map(WRONG, namespace="other"))
    await client.create(CONFIGMAPS, config_map(WRONG, name="mine"))
    await client.create(CONFIGMAPS, {"metadata": {"name": NAME, "namespace": SYSTEM}})

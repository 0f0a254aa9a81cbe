"""Roles of earlier versions lose their wider rights at the next start."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest

from hekla.apiserver import default_roles
from hekla.apiserver.server import ApiServer, Config
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.resources import CLUSTER_ROLES

WIDE = [{"apiGroups": ["batch"], "resources": ["*"], "verbs": ["*"]}]


def _client(server: ApiServer) -> Client:
    return Client(kubeconfig.load(server.kubeconfig), component="test")


async def _restarted_with(directory: Path, rules: list[dict[str, list[str]]]) -> object:
    """Return the rules of `edit` after a restart, if it had these before."""
    async with ApiServer(Config(directory)) as server, _client(server) as client:
        await client.patch(CLUSTER_ROLES, "edit", {"rules": rules})
    async with ApiServer(Config(directory)) as server, _client(server) as client:
        return (await client.get(CLUSTER_ROLES, "edit"))["rules"]


async def test_role_with_the_rules_of_an_earlier_version_is_narrowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = hashlib.sha256(msgspec.json.encode(WIDE, order="sorted")).hexdigest()
    monkeypatch.setattr(default_roles, "_FORMER", frozenset({digest}))
    assert await _restarted_with(tmp_path / "data", WIDE) == default_roles.CLUSTER_ROLES["edit"]


async def test_role_that_an_administrator_changed_is_kept(tmp_path: Path) -> None:
    assert await _restarted_with(tmp_path / "data", WIDE) == WIDE

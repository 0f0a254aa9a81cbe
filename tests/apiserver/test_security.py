"""Authentication, authorization, impersonation and limits against abuse."""

from __future__ import annotations

import asyncio
import io
import json
import ssl
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tools.kube.processes import free_port

from hekla.apiserver import app
from hekla.apiserver.server import AlreadyRunning, ApiServer, Config
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.errors import Forbidden, Unauthorized
from hekla.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIGMAPS,
    NAMESPACES,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
)
from hekla.web import protocol
from tests.apiserver.objects import config_map, namespace

RBAC = "rbac.authorization.k8s.io"


@pytest.fixture
async def http(server: ApiServer) -> AsyncIterator[aiohttp.ClientSession]:
    """A client without any token."""
    ca = (server.config.data_dir / "pki" / "ca.crt").read_text()
    context = ssl.create_default_context(cadata=ca)
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(server.address, connector=connector) as session:
        yield session


def admin_token(server: ApiServer) -> str:
    return (server.config.data_dir / "pki" / "admin.token").read_text().strip()


async def client_of(server: ApiServer, admin: Client, account: str, where: str) -> Client:
    """A client that authenticates as a service account."""
    token = await admin.create_token(account, namespace=where)
    path = server.config.data_dir / f"{account}.kubeconfig"
    ca = (server.config.data_dir / "pki" / "ca.crt").read_text()
    kubeconfig.write_kubeconfig(path, server.address, ca, token.value, account)
    return Client(kubeconfig.load(path), component="test")


def role(name: str, where: str, *rules: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": where}, "rules": list(rules)}


def binding(name: str, where: str, role_kind: str, role_name: str, account: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": where},
        "roleRef": {"apiGroup": RBAC, "kind": role_kind, "name": role_name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": where}],
    }


READ_MAPS = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}


async def test_secret_files_are_readable_by_the_owner_only(server: ApiServer) -> None:
    directory = server.config.data_dir
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    for path in [server.kubeconfig, *(directory / "pki").iterdir()]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


async def test_request_without_a_valid_token_is_unauthorized(
    server: ApiServer, http: aiohttp.ClientSession
) -> None:
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic YTpi"},
        {"Authorization": "Bearer "},
    ):
        async with http.get("/api/v1/pods", headers=headers) as answer:
            assert answer.status == 401
            assert (await answer.json())["reason"] == "Unauthorized"
    async with http.get("/metrics") as answer:
        assert answer.status == 401


async def test_health_and_version_need_no_token(http: aiohttp.ClientSession) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        async with http.get(path) as answer:
            assert (answer.status, await answer.text()) == (200, "ok")
    async with http.get("/version") as answer:
        assert (await answer.json())["major"] == "1"


async def test_client_without_the_ca_refuses_the_server(server: ApiServer) -> None:
    async with aiohttp.ClientSession(server.address) as stranger:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await stranger.get("/livez")


async def test_role_grants_only_its_rules_in_its_namespace(
    server: ApiServer, client: Client
) -> None:
    await client.create(NAMESPACES, namespace("team"))
    await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "bot", "namespace": "team"}})
    await client.create(ROLES, role("reader", "team", READ_MAPS))
    await client.create(ROLE_BINDINGS, binding("b", "team", "Role", "reader", "bot"))
    await client.create(CONFIGMAPS, config_map("c", "team"))
    async with await client_of(server, client, "bot", "team") as bot:
        assert await bot.get(CONFIGMAPS, "c", namespace="team")
        for forbidden in (
            bot.get(CONFIGMAPS, "c", namespace="default"),
            bot.create(CONFIGMAPS, config_map("d", "team")),
            bot.list(PODS, namespace="team"),
            bot.delete(CONFIGMAPS, "c", namespace="team"),
        ):
            with pytest.raises(Forbidden, match="system:serviceaccount:team:bot"):
                await forbidden
        await client.delete(ROLE_BINDINGS, "b", namespace="team")
        with pytest.raises(Forbidden):
            await bot.get(CONFIGMAPS, "c", namespace="team")


async def test_rbac_distinguishes_resource_names_and_subresources(
    server: ApiServer, client: Client
) -> None:
    await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "bot", "namespace": "default"}})
    only_c = {**READ_MAPS, "verbs": ["get"], "resourceNames": ["c"]}
    logs = {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]}
    await client.create(ROLES, role("r", "default", only_c, logs))
    await client.create(ROLE_BINDINGS, binding("b", "default", "Role", "r", "bot"))
    for name in ("c", "d"):
        await client.create(CONFIGMAPS, config_map(name))
    async with await client_of(server, client, "bot", "default") as bot:
        assert await bot.get(CONFIGMAPS, "c", namespace="default")
        with pytest.raises(Forbidden):
            await bot.get(CONFIGMAPS, "d", namespace="default")
        with pytest.raises(Forbidden, match='resource "pods"'):
            await bot.get(PODS, "x", namespace="default")


async def test_user_cannot_grant_rights_that_the_user_lacks(
    server: ApiServer, client: Client
) -> None:
    await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "bot", "namespace": "default"}})
    manage = {"apiGroups": [RBAC], "resources": ["*"], "verbs": ["*"]}
    manage["verbs"] = ["create", "get", "update"]
    await client.create(CLUSTER_ROLES, {"metadata": {"name": "r"}, "rules": [manage, READ_MAPS]})
    bound = binding("b", "default", "ClusterRole", "r", "bot")
    del bound["metadata"]["namespace"]
    await client.create(CLUSTER_ROLE_BINDINGS, bound)
    async with await client_of(server, client, "bot", "default") as bot:
        await bot.create(ROLES, role("fine", "default", READ_MAPS))
        with pytest.raises(Forbidden, match="not currently held"):
            await bot.create(ROLES, role("more", "default", {**READ_MAPS, "verbs": ["delete"]}))
        with pytest.raises(Forbidden, match="not currently held"):
            await bot.create(
                ROLE_BINDINGS, binding("up", "default", "ClusterRole", "cluster-admin", "bot")
            )


async def test_token_is_invalid_after_its_account_was_deleted(
    server: ApiServer, client: Client
) -> None:
    account = {"metadata": {"name": "bot", "namespace": "default"}}
    await client.create(SERVICE_ACCOUNTS, account)
    async with await client_of(server, client, "bot", "default") as bot:
        with pytest.raises(Forbidden):
            await bot.list(PODS, namespace="default")
        await client.delete(SERVICE_ACCOUNTS, "bot", namespace="default")
        with pytest.raises(Unauthorized):
            await bot.list(PODS, namespace="default")
        await client.create(SERVICE_ACCOUNTS, account)
        with pytest.raises(Unauthorized):  # the same name, but a different account
            await bot.list(PODS, namespace="default")


async def test_a_body_beyond_the_limit_is_refused_declared_or_not(
    server: ApiServer, http: aiohttp.ClientSession
) -> None:
    headers = {
        "Authorization": f"Bearer {admin_token(server)}",
        "Content-Type": "application/json",
    }
    path = "/api/v1/namespaces/default/configmaps"
    large = io.BytesIO(b"x" * (app.MAX_BODY + 1))
    async with http.post(path, data=large, headers=headers) as answer:
        assert answer.status == 413

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(app.MAX_BODY // 65536 + 2):
            yield b" " * 65536

    async with http.post(path, data=endless(), headers=headers) as answer:
        assert answer.status == 413
        assert (await answer.json())["reason"] == "RequestEntityTooLarge"


async def raw_connection(server: ApiServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = ssl.create_default_context(
        cadata=(server.config.data_dir / "pki" / "ca.crt").read_text()
    )
    return await asyncio.open_connection("127.0.0.1", server.port, ssl=context)


async def read_to_end(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(60):
        try:
            return await reader.read()
        except (ConnectionResetError, ssl.SSLError):
            return b""


async def test_endless_headers_are_refused(server: ApiServer) -> None:
    reader, writer = await raw_connection(server)
    writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n")
    filler = b"X-Filler: " + b"a" * 1000 + b"\r\n"
    try:
        for _ in range(200):
            writer.write(filler)
            await writer.drain()
    except (ConnectionError, ssl.SSLError):
        pass
    answer = await read_to_end(reader)
    assert b"200 OK" not in answer
    writer.close()


async def test_client_with_slow_headers_is_disconnected(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEADER_TIMEOUT_S", 0.05)
    reader, writer = await raw_connection(server)
    writer.write(b"GET /livez HTTP/1.1\r\nHost")
    assert await read_to_end(reader) == b""
    writer.close()


async def test_malformed_requests_are_answered_and_the_server_survives(
    server: ApiServer, http: aiohttp.ClientSession
) -> None:
    headers = {"Authorization": f"Bearer {admin_token(server)}"}
    nested = b'{"a":' * 5000 + b"1" + b"}" * 5000
    cases = {
        "not JSON": b"{]",
        "a list": b"[]",
        "a number": b"3",
        "nothing": b"",
        "not UTF-8": b'{"kind":"\xff"}',
        "deep nesting": nested,
        "metadata that is a string": b'{"metadata":"x"}',
        "a name that is a number": b'{"metadata":{"name":3}}',
        "labels that are a list": b'{"metadata":{"name":"x","labels":[]}}',
        "another kind": b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x"}}',
        "a huge number": b'{"metadata":{"name":"x","generation":' + b"9" * 400 + b"}}",
    }
    path = "/api/v1/namespaces/default/configmaps"
    for what, body in cases.items():
        sent = {**headers, "Content-Type": "application/json"}
        async with http.post(path, data=body, headers=sent) as answer:
            assert 400 <= answer.status < 500, what
            status = json.loads(await answer.text())
            assert status["kind"] == "Status", what
            assert status["message"], what
    for query in (
        "limit=x", "labelSelector=%3D%3D", "fieldSelector=spec.nope%3D1",
        "resourceVersion=abc", "continue=zzz", "watch=true&timeoutSeconds=x",
        "resourceVersionMatch=Odd&resourceVersion=1",
    ):  # fmt: skip
        async with http.get(f"{path}?{query}", headers=headers) as answer:
            assert answer.status in (400, 422), query
    async with http.get("/livez") as answer:
        assert answer.status == 200


async def test_data_directory_is_used_by_one_server_only(server: ApiServer) -> None:
    second = ApiServer(Config(data_dir=server.config.data_dir))
    with pytest.raises(AlreadyRunning, match="in use by another hekla"):
        await second.start()


async def test_only_the_administrator_can_impersonate(
    server: ApiServer, client: Client, http: aiohttp.ClientSession
) -> None:
    headers = {
        "Authorization": f"Bearer {admin_token(server)}",
        "Impersonate-User": "jane",
        "Impersonate-Group": "devs",
    }
    async with http.get("/api/v1/namespaces/default/pods", headers=headers) as answer:
        assert answer.status == 403
        assert 'User "jane" cannot list' in (await answer.json())["message"]
    await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "bot", "namespace": "default"}})
    token = await client.create_token("bot", namespace="default")
    headers["Authorization"] = f"Bearer {token.value}"
    async with http.get("/api/v1/namespaces/default/pods", headers=headers) as answer:
        assert answer.status == 403
        assert "cannot impersonate" in (await answer.json())["message"]


async def test_a_restart_keeps_the_authority_the_token_and_the_objects(tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path / "data", port=free_port())
    async with ApiServer(config) as first:
        before = kubeconfig.load(first.kubeconfig)
        async with Client(before) as client:
            await client.create(CONFIGMAPS, config_map("kept"))
    async with ApiServer(config), Client(before) as client:
        assert await client.get(CONFIGMAPS, "kept", namespace="default")

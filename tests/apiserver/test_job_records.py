"""Job records in the API: reading follows rights, and nothing can be written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from hekla.api.history import from_list, from_object
from hekla.apiserver.server import ApiServer, Config
from hekla.kube import kubeconfig
from hekla.kube.calls import Call
from hekla.kube.client import Client
from hekla.kube.credentials import Auth, FixedCredentials
from hekla.kube.errors import ApiError, Forbidden, NotFound
from hekla.kube.resources import NAMESPACES, ROLE_BINDINGS, SERVICE_ACCOUNTS
from hekla.records.store import HistoryStore
from tests.records.builders import record

ROOT = "/apis/history.hekla.io/v1"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    store = HistoryStore(tmp_path / "data" / "history.db")
    async with ApiServer(Config(data_dir=tmp_path / "data", history=store)) as running:
        for name in ("one", "two", "three"):
            store.put(record(name, user="alice" if name == "one" else "bob"), settled=True)
        store.put(record("other", namespace="ml"), settled=True)
        yield running
    store.close()


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[Client]:
    async with Client(kubeconfig.load(server.kubeconfig), component="test") as made:
        yield made


async def read(client: Client, path: str, **query: str) -> bytes:
    return await client.call(Call("GET", f"{ROOT}/{path}", tuple(query.items())))


async def test_records_are_listed_by_namespace_user_and_page(client: Client) -> None:
    mine, more = from_list(await read(client, "namespaces/default/jobrecords", user="alice"))
    assert ([each.name for each in mine], more) == (["one"], "")
    first, token = from_list(await read(client, "jobrecords", limit="3"))
    rest, more = from_list(await read(client, "jobrecords", **{"limit": "3", "continue": token}))
    assert {each.name for each in (*first, *rest)} == {"one", "two", "three", "other"}
    assert (len(first), len(rest), more) == (3, 1, "")


async def test_one_record_is_read_by_its_name(client: Client) -> None:
    path = f"namespaces/default/jobrecords/{record('one').id}"
    found = from_object(msgspec.json.decode(await read(client, path)))
    assert (found.name, found.user) == ("one", "alice")
    with pytest.raises(NotFound, match="gone"):
        await read(client, "namespaces/default/jobrecords/gone")


async def test_kubectl_finds_the_kind_and_gets_a_table(client: Client) -> None:
    found = msgspec.json.decode(await client.call(Call("GET", ROOT)))
    assert [(each["name"], each["verbs"]) for each in found["resources"]] == [
        ("jobrecords", ["get", "list"])
    ]
    accept = "application/json;as=Table;g=meta.k8s.io;v=v1"
    call = Call("GET", f"{ROOT}/namespaces/ml/jobrecords", accept=accept)
    table = msgspec.json.decode(await client.call(call))
    columns = [column["name"] for column in table["columnDefinitions"]]
    (row,) = table["rows"]
    assert dict(zip(columns, row["cells"], strict=True))["Job"] == "other"
    await client.call(Call("GET", "/openapi/v2"))
    await client.call(Call("GET", f"/openapi/v3{ROOT}"))


async def test_records_cannot_be_written_watched_or_deleted(client: Client) -> None:
    path = f"{ROOT}/namespaces/default/jobrecords"
    for call in (
        Call("POST", path, body=b"{}"),
        Call("DELETE", path),
        Call("DELETE", f"{path}/x"),
        Call("GET", path, (("watch", "true"),)),
    ):
        with pytest.raises(ApiError) as refused:
            await client.call(call)
        assert refused.value.status == 405


async def test_nonsense_is_refused_by_name(client: Client) -> None:
    with pytest.raises(ApiError, match="limit='many'"):
        await read(client, "jobrecords", limit="many")
    with pytest.raises(ApiError, match="parameters are name, user, queue"):
        await read(client, "jobrecords", labelSelector="team=ml")


async def test_role_view_reads_the_records_of_its_namespace_only(
    server: ApiServer, client: Client
) -> None:
    await client.create(NAMESPACES, {"metadata": {"name": "ml"}})
    await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "bot", "namespace": "ml"}})
    await client.create(
        ROLE_BINDINGS,
        {
            "metadata": {"name": "bot", "namespace": "ml"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "bot", "namespace": "ml"}],
        },
    )  # fmt: skip
    account = await client.get(SERVICE_ACCOUNTS, "bot", namespace="ml")
    token, _ = server.issuer.issue(account, seconds=600)
    auth = Auth(headers=(("authorization", f"Bearer {token}"),))
    target = msgspec.structs.replace(
        kubeconfig.load(server.kubeconfig), credentials=FixedCredentials(auth)
    )
    async with Client(target, component="bot") as bot:
        found, _ = from_list(await read(bot, "namespaces/ml/jobrecords"))
        assert [each.name for each in found] == ["other"]
        for path in ("jobrecords", "namespaces/default/jobrecords"):
            with pytest.raises(Forbidden, match="cannot list resource"):
                await read(bot, path)


async def test_server_without_a_history_does_not_serve_the_kind(tmp_path: Path) -> None:
    async with (
        ApiServer(Config(data_dir=tmp_path / "bare")) as server,
        Client(kubeconfig.load(server.kubeconfig), component="test") as client,
    ):
        with pytest.raises(NotFound):
            await read(client, "jobrecords")


async def test_broken_file_is_reported_to_the_reader(server: ApiServer, client: Client) -> None:
    store = server.config.history
    assert store is not None
    store.close()
    for path in store.path.parent.glob("history.db*"):
        path.unlink()
    store.path.write_bytes(b"nonsense " * 1000)
    with pytest.raises(ApiError, match="not a database") as refused:
        await read(client, "jobrecords")
    assert refused.value.status == 503

"""Job records on the controllers' port: each token reads what its rights allow, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hekla.kube import access_reviews, kubeconfig
from hekla.kube.access_reviews import TokenAuthorizer
from hekla.kube.client import Client
from hekla.kube.resources import NAMESPACES, ROLE_BINDINGS, SERVICE_ACCOUNTS
from hekla.records.service import HistoryService, attributes_of, target_of
from hekla.records.store import HistoryStore
from hekla.units.clock import ManualClock
from hekla.web.authorization import TokenRequired
from hekla.web.probes import Probes
from tests.realkube.backends import embedded_server
from tests.records.builders import record

ROOT = "/apis/history.hekla.io/v1"
MINE = f"{ROOT}/namespaces/ml/jobrecords"


async def request(
    app: Any, path: str, token: str = "", method: str = "GET", query: bytes = b""
) -> tuple[int, bytes]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query,
        "headers": headers,
    }
    await app(scope, None, send)
    return sent[0]["status"], sent[1]["body"]


@pytest.fixture
def store(tmp_path: Path) -> HistoryStore:
    made = HistoryStore(tmp_path / "history.db")
    made.put(record("mine", namespace="ml"), settled=True)
    made.put(record("other"), settled=True)
    return made


def service(store: HistoryStore, *, leads: bool = True) -> HistoryService:
    return HistoryService(Probes({}), store, lambda: leads)


@pytest.mark.parametrize(
    "path",
    [
        ROOT,
        f"{ROOT}/",
        f"{ROOT}/pods",
        f"{ROOT}/jobrecords/x",
        f"{ROOT}/namespaces//jobrecords",
        f"{ROOT}/namespaces/ml/jobrecords/",
        f"{ROOT}/namespaces/ml/../default/jobrecords",
        f"{ROOT}//namespaces/ml/jobrecords",
        "/apis/history.hekla.io/v2/jobrecords",
    ],
)
async def test_any_other_path_is_neither_authorized_as_records_nor_answered(
    store: HistoryStore, path: str
) -> None:
    assert attributes_of(path) is None
    assert target_of(path) is None
    assert (await request(service(store), path))[0] == 404


async def test_token_reads_the_namespace_that_its_role_covers(
    tmp_path: Path, store: HistoryStore
) -> None:
    with embedded_server(tmp_path / "data") as config:
        async with Client(kubeconfig.load(config), component="test") as client:
            clock = ManualClock()
            authorize = TokenAuthorizer(client, clock, resource_of=attributes_of)
            app = TokenRequired(service(store), authorize, open_paths=[])
            await client.create(NAMESPACES, {"metadata": {"name": "ml"}})
            await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "bot", "namespace": "ml"}})
            token = (await client.create_token("bot", namespace="ml")).value
            assert (await request(app, MINE))[0] == 401
            assert (await request(app, MINE, "forged"))[0] == 401
            status, body = await request(app, MINE, token)
            assert (
                status,
                b'cannot list jobrecords.history.hekla.io in namespace "ml"' in body,
            ) == (
                403,
                True,
            )
            await client.create(
                ROLE_BINDINGS,
                {
                    "metadata": {"name": "bot", "namespace": "ml"},
                    "roleRef": {
                        "apiGroup": "rbac.authorization.k8s.io",
                        "kind": "ClusterRole",
                        "name": "view",
                    },
                    "subjects": [{"kind": "ServiceAccount", "name": "bot", "namespace": "ml"}],
                },
            )
            await clock.advance(access_reviews.REFUSED_FOR_S)
            status, body = await request(app, MINE, token)
            assert status == 200
            items = msgspec.json.decode(body)["items"]
            assert [item["record"]["name"] for item in items] == ["mine"]
            one = f"{MINE}/{record('mine').id}"
            assert (await request(app, one, token))[0] == 200
            for path in (f"{ROOT}/jobrecords", f"{ROOT}/namespaces/default/jobrecords"):
                assert (await request(app, path, token))[0] == 403


async def test_standby_names_the_leader_instead_of_an_empty_history(store: HistoryStore) -> None:
    status, body = await request(service(store, leads=False), MINE)
    assert (status, b"on standby" in body) == (503, True)


async def test_nonsense_and_writes_are_refused(store: HistoryStore) -> None:
    app = service(store)
    assert (await request(app, MINE, query=b"limit=many"))[0] == 400
    assert (await request(app, MINE, query=b"labelSelector=a%3Db"))[0] == 400
    assert (await request(app, MINE, query=b"user=" + b"x" * 9000))[0] == 400
    for method in ("POST", "DELETE", "PUT", "PATCH"):
        assert (await request(app, MINE, method=method))[0] == 405
    assert (await request(app, f"{MINE}/gone"))[0] == 404
    assert await request(app, MINE, method="HEAD") == (200, b"")


async def test_broken_file_is_reported_and_other_pages_work(store: HistoryStore) -> None:
    store.close()
    for path in store.path.parent.glob("history.db*"):
        path.unlink()
    store.path.write_bytes(b"nonsense " * 1000)
    status, body = await request(service(store), MINE)
    assert (status, b"not a database" in body) == (503, True)
    assert (await request(service(store), "/unknown"))[0] == 404

"""Metrics of a component over TLS: for tokens with the right to read them, and nobody else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hekla.kube import access_reviews, kubeconfig
from hekla.kube.access_reviews import TokenAuthorizer
from hekla.kube.client import Client
from hekla.kube.errors import KubeError
from hekla.kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, SERVICE_ACCOUNTS
from hekla.units.clock import ManualClock
from hekla.web.authorization import TokenRequired
from hekla.web.probes import Probes
from tests.realkube.backends import embedded_server


class _Unreachable:
    """A client whose server does not answer."""

    async def create(self, *_: Any, **__: Any) -> Any:
        raise KubeError("no answer")


async def _get(app: Any, path: str, token: str | None) -> tuple[int, bytes]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
    scope = {"type": "http", "method": "GET", "path": path, "headers": headers}
    await app(scope, None, send)
    return sent[0]["status"], sent[1]["body"]


async def _metrics() -> bytes:
    return b"jobs 1\n"


def _app(authorize: TokenAuthorizer) -> TokenRequired:
    probes = Probes({"healthz": lambda: ""}, _metrics, {"verdicts": lambda: b"[]"})
    return TokenRequired(probes, authorize, open_paths=["/healthz"])


@pytest.mark.parametrize("path", ["/metrics", "/verdicts"])
async def test_pages_need_a_token_with_the_right_to_read_them(tmp_path: Path, path: str) -> None:
    with embedded_server(tmp_path) as config:
        async with Client(kubeconfig.load(config), component="test") as client:
            clock = ManualClock()
            app = _app(TokenAuthorizer(client, clock))
            await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "reader"}})
            token = (await client.create_token("reader", namespace="default")).value
            assert await _get(app, "/healthz", None) == (200, b"ok\n")
            assert (await _get(app, path, None))[0] == 401
            assert (await _get(app, path, "forged"))[0] == 401
            status, body = await _get(app, path, token)
            assert (status, b"hekla-metrics-reader" in body) == (403, True)

            rules = [{"nonResourceURLs": [path], "verbs": ["get"]}]
            await client.create(CLUSTER_ROLES, {"metadata": {"name": "pages"}, "rules": rules})
            binding = {
                "metadata": {"name": "pages"},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": "pages",
                },
                "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}],
            }
            await client.create(CLUSTER_ROLE_BINDINGS, binding)
            assert (await _get(app, path, token))[0] == 403, "a refusal is cached for a moment"
            await clock.advance(access_reviews.REFUSED_FOR_S)
            assert (await _get(app, path, token))[0] == 200
            await client.delete(CLUSTER_ROLE_BINDINGS, "pages")
            await clock.advance(access_reviews.ALLOWED_FOR_S)
            assert (await _get(app, path, token))[0] == 403, (
                "a withdrawn right ends within a minute"
            )


async def test_nobody_is_admitted_while_the_api_server_is_unreachable() -> None:
    client: Any = _Unreachable()
    assert (await _get(_app(TokenAuthorizer(client, ManualClock())), "/metrics", "some"))[0] == 503


async def test_cache_of_decisions_is_bounded() -> None:
    class Refusing:
        async def create(self, *_: Any, **__: Any) -> Any:
            return {"status": {"authenticated": False}}

    client: Any = Refusing()
    authorize = TokenAuthorizer(client, ManualClock())
    for number in range(access_reviews.MAX_CACHED + 10):
        assert (await authorize(str(number), "get", "/metrics")).status == 401
    assert len(authorize._cache) == access_reviews.MAX_CACHED

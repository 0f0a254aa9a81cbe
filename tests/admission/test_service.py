"""The admission service as the API server calls it: over TLS, with its CA."""

from __future__ import annotations

import base64
import json
import re
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import jsonpatch
import pytest

from hekla.admission import app
from hekla.admission.certificates import CertificateSecret
from hekla.admission.service import SECRET, AdmissionService
from hekla.admission.webhooks import HOOKS, WebhookAddress, configurations
from hekla.api.volcano import View
from hekla.apiserver.server import ApiServer, Config
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.errors import Invalid
from hekla.kube.resources import (
    JOBS,
    MUTATING_WEBHOOKS,
    QUEUES,
    SECRETS,
    VALIDATING_WEBHOOKS,
)
from hekla.units.clock import ManualClock
from hekla.web.server import WebServer
from tests.api.test_volcano_jobs import Cluster, job, queue, task

Json = dict[str, Any]
NOW = 1_790_000_000.0
YEAR_S = 365 * 86400.0


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with (
        ApiServer(Config(data_dir=tmp_path / "data")) as server,
        Client(kubeconfig.load(server.kubeconfig)) as made,
    ):
        yield made


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
async def service(client: Client) -> AsyncIterator[tuple[AdmissionService, WebServer]]:
    made = AdmissionService(client, port=0)
    async with made.serving() as server:
        yield made, server


async def post(client: Client, hook_name: str, body: bytes | Json, **headers: str) -> Any:
    """Call a webhook as its configuration specifies."""
    kind, name = hook_name.split("/")
    resource = MUTATING_WEBHOOKS if kind == "mutating" else VALIDATING_WEBHOOKS
    webhook = (await client.get(resource, name))["webhooks"][0]
    ca = base64.b64decode(webhook["clientConfig"]["caBundle"]).decode()
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=ca))
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"Content-Type": "application/json", **headers}
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.post(webhook["clientConfig"]["url"], data=data, headers=sent) as answer,
    ):
        text = await answer.text()
        return (answer.status, json.loads(text) if answer.status == 200 else text)


def review(obj: Json, operation: str = "CREATE", old: Json | None = None) -> Json:
    request = {"uid": "u-1", "operation": operation, "object": obj, "oldObject": old}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


async def test_job_is_defaulted_by_a_patch(client: Client, service: Any) -> None:
    one = job(task(replicas=2), plugins={"pytorch": []})
    _, answer = await post(client, "mutating/hekla-admission-jobs-mutate", review(one))
    response = answer["response"]
    assert (response["uid"], response["allowed"]) == ("u-1", True)
    patch = json.loads(base64.b64decode(response["patch"]))
    completed = jsonpatch.apply_patch(one, patch)
    assert completed["spec"]["minAvailable"] == 2
    assert completed["spec"]["plugins"] == {"pytorch": [], "svc": []}


async def test_invalid_job_is_denied_with_all_reasons(client: Client, service: Any) -> None:
    one = job(task(replicas=2, minAvailable=5), queue="nope")
    _, answer = await post(client, "validating/hekla-admission-jobs-validate", review(one))
    response = answer["response"]
    assert response["allowed"] is False
    assert response["status"]["code"] == 422
    assert "no such queue" in response["status"]["message"]
    assert len(response["status"]["details"]["causes"]) == 2


async def test_validation_uses_cluster_state(client: Client, service: Any) -> None:
    made = await client.create(QUEUES, queue("team"))
    hook = "validating/hekla-admission-jobs-validate"
    for _ in range(100):  # until the informer has the object
        _, answer = await post(client, hook, review(job(queue="team")))
        if answer["response"]["allowed"]:
            break
    assert answer["response"]["allowed"], answer
    deletion = review(None, "DELETE", made)  # type: ignore[arg-type]
    _, answer = await post(client, "validating/hekla-admission-queues-validate", deletion)
    assert answer["response"]["allowed"]
    root = await client.get(QUEUES, "root")
    deletion = review(None, "DELETE", root)  # type: ignore[arg-type]
    _, answer = await post(client, "validating/hekla-admission-queues-validate", deletion)
    assert "can not be deleted" in answer["response"]["status"]["message"]


async def test_deletion_of_a_queue_with_a_job_is_refused_until_the_job_is_deleted(
    client: Client, service: Any
) -> None:
    made = await client.create(QUEUES, queue("busy"))
    await client.create(JOBS, job(task(), queue="busy", name="train"), namespace="default")
    hook = "validating/hekla-admission-queues-validate"
    deletion = review(None, "DELETE", made)  # type: ignore[arg-type]
    _, answer = await post(client, hook, deletion)
    want = "1 unfinished job (1 pending): default/train"
    assert want in answer["response"]["status"]["message"]
    with pytest.raises(Invalid, match=re.escape(want)):  # the server's own admission
        await client.delete(QUEUES, "busy")
    await client.delete(JOBS, "train", namespace="default")
    _, answer = await post(client, hook, deletion)
    assert answer["response"]["allowed"], answer
    await client.delete(QUEUES, "busy")


NONSENSE: dict[str, tuple[bytes, int]] = {
    "not JSON": (b"{]", 400),
    "not a review": (b'{"kind":"Pod"}', 400),
    "another version": (
        b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1"}',
        400,
    ),
    "no request": (b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}', 400),
    "no object": (
        b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u"}}',
        400,
    ),
}


@pytest.mark.parametrize("what", NONSENSE)
async def test_malformed_review_is_refused(client: Client, service: Any, what: str) -> None:
    body, want = NONSENSE[what]
    status, _ = await post(client, "validating/hekla-admission-jobs-validate", body)
    assert status == want


async def test_a_review_beyond_the_limit_is_refused(
    client: Client, service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "MAX_BODY", 1000)
    hook = "validating/hekla-admission-jobs-validate"
    status, text = await post(client, hook, b" " * 1001)
    assert (status, text) == (413, "a review is limited to 1000 bytes")
    status, _ = await post(client, hook, b"{}", **{"Content-Type": "text/plain"})
    assert status == 415


async def test_a_refusal_for_a_queue_is_decided_on_the_current_queues() -> None:
    """A webhook's informer may not have seen the deletion of the last child yet."""
    parent, child = queue("dept"), queue("team", parent="dept")
    body = json.dumps(review(None, "DELETE", parent)).encode()  # type: ignore[arg-type]

    async def answer(*now: Json) -> bool:
        async def current(workloads_of: str | None) -> View:
            assert workloads_of == "dept"
            return Cluster(*now)

        sent: list[Any] = []

        async def receive() -> Json:
            return {"type": "http.request", "body": body}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "path": "/queues/validate",
            "method": "POST",
            "headers": [(b"content-type", b"application/json")],
        }
        await app.App(Cluster(parent, child), current=current)(scope, receive, send)
        return bool(json.loads(sent[1]["body"])["response"]["allowed"])

    assert await answer(parent)
    assert not await answer(parent, child)


async def test_address_changes_between_url_and_service_in_any_order(client: Client) -> None:
    by_url = WebhookAddress(url="https://127.0.0.1:8443")
    by_service = WebhookAddress(namespace="volcano-system", service="hekla-admission-service")
    for body in configurations(by_service, b"old"):  # as another field manager installs them
        del body["webhooks"][0]["clientConfig"]["caBundle"]
        mutates = body["kind"].startswith("Mutating")
        resource = MUTATING_WEBHOOKS if mutates else VALIDATING_WEBHOOKS
        await client.apply(resource, body, field_manager="hekla-install")
    for address in (by_url, by_url, by_service, by_url, by_service, by_service):
        async with AdmissionService(client, port=0, address=address).serving():
            found = await client.get(MUTATING_WEBHOOKS, "hekla-admission-jobs-mutate")
            config = found["webhooks"][0]["clientConfig"]
            assert ("url" in config, "service" in config) == (bool(address.url), not address.url)
            assert config["caBundle"]


async def test_two_replicas_share_one_certificate_authority(
    client: Client, clock: ManualClock
) -> None:
    names = ("hekla-admission.volcano-system.svc",)
    first = await CertificateSecret(client, clock, "volcano-system", SECRET).ensure(names)
    second = await CertificateSecret(client, clock, "volcano-system", SECRET).ensure(names)
    assert first == second


async def test_certificates_are_renewed_before_expiry_and_the_ca_stays(
    client: Client, clock: ManualClock
) -> None:
    secret = CertificateSecret(client, clock, "volcano-system", SECRET)
    names = ("hekla-admission.volcano-system.svc",)
    first = await secret.ensure(names)
    clock.skip(YEAR_S - 20 * 86400)
    second = await secret.ensure(names)
    assert second.serving != first.serving
    assert second.authority == first.authority
    moved = await secret.ensure(("elsewhere.volcano-system.svc",))
    assert moved.serving != second.serving, "other names need another certificate"
    clock.skip(10 * YEAR_S)
    assert (await secret.ensure(names)).authority != first.authority


async def test_a_renewed_certificate_is_served_and_trusted_without_a_restart(
    client: Client, service: tuple[AdmissionService, WebServer]
) -> None:
    running, server = service
    await client.delete(SECRETS, SECRET, namespace="volcano-system")
    await running.renew(server)
    hook = "validating/hekla-admission-jobs-validate"
    status, _ = await post(client, hook, review(job()))
    assert status == 200


def test_no_webhook_covers_pods() -> None:
    made = configurations(WebhookAddress("volcano-system", "hekla-admission"), b"CA")
    resources = {r for one in made for r in one["webhooks"][0]["rules"][0]["resources"]}
    assert "pods" not in resources
    assert len(made) == len(HOOKS)
    assert all(one["webhooks"][0]["timeoutSeconds"] <= 10 for one in made)

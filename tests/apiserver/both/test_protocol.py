"""Health paths, compression, bookmarks and default tolerations of both servers."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json

import pytest

from hekla.units.objects import Object
from tests.apiserver.both.conftest import Api

BIG = 200_000


def fetch(
    api: Api, path: str, method: str = "GET", body: bytes | None = None, **headers: str
) -> tuple[int, http.client.HTTPMessage, bytes]:
    link = http.client.HTTPSConnection(
        api._address.hostname or "", api._address.port, context=api._tls, timeout=60
    )
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        link.request(method, path, body, {**api._headers, **named})
        answer = link.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        link.close()


# --- health -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz"])
def test_health_lists_its_checks(api: Api, path: str) -> None:
    status, headers, body = fetch(api, path)
    assert (status, body) == (200, b"ok")
    assert headers["Content-Type"] == "text/plain; charset=utf-8"
    status, _, body = fetch(api, f"{path}?verbose")
    lines = body.decode().splitlines()
    assert (status, lines[0], lines[-1]) == (200, "[+]ping ok", f"{path[1:]} check passed")
    assert all(line.startswith("[+]") and line.endswith(" ok") for line in lines[:-1])


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz"])
def test_a_check_can_be_asked_alone_or_left_out(api: Api, path: str) -> None:
    assert fetch(api, f"{path}/ping")[::2] == (200, b"ok")
    assert fetch(api, f"{path}/nothing")[0] == 404
    status, _, body = fetch(api, f"{path}?verbose&exclude=ping&exclude=nothing")
    assert status == 200
    assert body.startswith(b"[+]ping excluded: ok\n")
    assert b'"nothing"' in body


# --- gzip -------------------------------------------------------------------------------------


@pytest.fixture
def root(api: Api, namespace: str) -> str:
    root = f"/api/v1/namespaces/{namespace}/configmaps"
    api.post(root, {"metadata": {"name": "big"}, "data": {"a": "x" * BIG}}).ok()
    api.post(root, {"metadata": {"name": "small"}, "data": {"a": "x"}}).ok()
    return root


@pytest.mark.parametrize("path", ["/big", ""])
@pytest.mark.parametrize("accepted", ["gzip", "deflate, gzip"])
def test_a_large_answer_is_compressed(api: Api, root: str, path: str, accepted: str) -> None:
    plain = json.loads(fetch(api, root + path)[2])
    status, headers, body = fetch(api, root + path, Accept_Encoding=accepted)
    assert (status, headers["Content-Encoding"]) == (200, "gzip")
    assert headers["Vary"] == "Accept-Encoding"
    assert len(body) < BIG / 20
    assert json.loads(gzip.decompress(body)) == plain


@pytest.mark.parametrize("accepted", ["", "identity", "deflate", "gzip;q=0", "*"])
def test_other_clients_get_plain_bytes(api: Api, root: str, accepted: str) -> None:
    _, headers, body = fetch(api, f"{root}/big", Accept_Encoding=accepted)
    assert "Content-Encoding" not in headers
    assert len(body) > BIG


@pytest.mark.parametrize("path", ["/small", "?limit=1&fieldSelector=metadata.name=small", "/none"])
def test_a_small_answer_is_not_compressed(api: Api, root: str, path: str) -> None:
    _, headers, body = fetch(api, root + path, Accept_Encoding="gzip")
    assert "Content-Encoding" not in headers
    assert body.startswith(b"{")


def test_the_answer_to_a_write_is_compressed(api: Api, root: str) -> None:
    patch = b'{"metadata":{"labels":{"a":"b"}}}'
    _, headers, body = fetch(
        api, f"{root}/big", "PATCH", patch,
        Accept_Encoding="gzip", Content_Type="application/merge-patch+json",
    )  # fmt: skip
    assert headers["Content-Encoding"] == "gzip"
    assert json.loads(gzip.decompress(body))["metadata"]["labels"] == {"a": "b"}


def test_a_watch_is_not_compressed(api: Api, root: str) -> None:
    path = f"{root}?watch=1&timeoutSeconds=1"
    _, headers, body = fetch(api, path, Accept_Encoding="gzip")
    assert "Content-Encoding" not in headers
    assert len(body) > BIG


# --- bookmarks --------------------------------------------------------------------------------


def test_a_watch_that_ends_has_sent_a_bookmark(api: Api, root: str) -> None:
    """Without it a watch of quiet objects restarts with a list after each time-out."""
    since = api.get(root).body["metadata"]["resourceVersion"]
    query = f"watch=1&timeoutSeconds=4&resourceVersion={since}&fieldSelector=metadata.name=big"
    link = http.client.HTTPSConnection(
        api._address.hostname or "", api._address.port, context=api._tls, timeout=60
    )
    with contextlib.closing(link):
        link.request("GET", f"{root}?{query}&allowWatchBookmarks=true", headers=api._headers)
        answer = link.getresponse()
        later = api.post(root, {"metadata": {"name": "other"}}).ok()["metadata"]["resourceVersion"]
        events = [json.loads(line) for line in answer]
    # kube-apiserver also sends bookmarks at intervals.
    assert {event["type"] for event in events} == {"BOOKMARK"}
    assert int(events[-1]["object"]["metadata"]["resourceVersion"]) >= int(later)
    assert set(events[-1]["object"]) == {"kind", "apiVersion", "metadata"}
    assert fetch(api, f"{root}?{query.replace('Seconds=4', 'Seconds=1')}")[2] == b""


def test_a_watch_from_the_start_marks_the_end_of_what_exists(api: Api, root: str) -> None:
    path = f"{root}?watch=1&timeoutSeconds=1&allowWatchBookmarks=true&resourceVersion=0"
    events = [json.loads(line) for line in fetch(api, path)[2].splitlines()]
    assert [event["type"] for event in events][-1] == "BOOKMARK"
    assert events[-1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


# --- default tolerations ----------------------------------------------------------------------

NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
EXISTS: Object = {"operator": "Exists"}
GIVEN: dict[str, tuple[list[Object], list[str]]] = {
    "none": ([], [NOT_READY, UNREACHABLE]),
    "one": ([{"key": NOT_READY, **EXISTS}], [UNREACHABLE]),
    "all": ([EXISTS], []),
    "another effect": ([{**EXISTS, "effect": "NoSchedule"}], [NOT_READY, UNREACHABLE]),
    "own time": (
        [{"key": UNREACHABLE, **EXISTS, "effect": "NoExecute", "tolerationSeconds": 5}],
        [NOT_READY],
    ),
}


@pytest.mark.parametrize("case", GIVEN)
def test_pods_tolerate_a_lost_node_for_five_minutes(api: Api, namespace: str, case: str) -> None:
    given, added = GIVEN[case]
    body = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "tolerations": given},
    }
    made = api.post(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", body).ok()
    want = [
        {"key": key, **EXISTS, "effect": "NoExecute", "tolerationSeconds": 300} for key in added
    ]
    assert made["spec"]["tolerations"] == [*given, *want]

"""Service-account tokens: signature, expiry, and deletion of account or pod."""

from __future__ import annotations

from pathlib import Path

import jwt
import msgspec
import pytest

from hekla.apiserver.auth.tokens import ISSUER, TokenIssuer, new_signing_key
from hekla.apiserver.storage.store import Store
from hekla.apiserver.storage.watch_cache import Entry
from hekla.units.clock import ManualClock
from hekla.units.objects import Object

NOW = 1_790_000_000.0


def obj(name: str, uid: str) -> Object:
    return {"metadata": {"namespace": "ml", "name": name, "uid": uid}}


async def put(store: Store, table: str, one: Object | None, key: str = "") -> None:
    key = key or f"ml/{one['metadata']['name']}"  # type: ignore[index]
    previous = store.head(table, key)
    body = msgspec.json.encode(one) if one else previous.body  # type: ignore[union-attr]
    entry = Entry(key, store.next_revision(), body)
    await store.stage((table, entry, previous, one is None))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


async def test_token_authenticates_its_account_until_it_expires(
    tmp_path: Path, clock: ManualClock
) -> None:
    store = Store.open(tmp_path / "s.db")
    issuer = TokenIssuer(store, new_signing_key(), clock)
    await put(store, "serviceaccounts", obj("bot", "u-1"))
    token, expires = issuer.issue(obj("bot", "u-1"), seconds=600)
    assert expires == NOW + 600
    user = issuer.user_for(token)
    assert user is not None
    assert user.name == "system:serviceaccount:ml:bot"
    assert "system:serviceaccounts:ml" in user.groups
    clock.skip(599)
    assert issuer.user_for(token) is not None
    clock.skip(1)
    assert issuer.user_for(token) is None
    await store.close()


async def test_token_with_a_wrong_signature_is_invalid(tmp_path: Path, clock: ManualClock) -> None:
    store = Store.open(tmp_path / "s.db")
    issuer = TokenIssuer(store, new_signing_key(), clock)
    await put(store, "serviceaccounts", obj("bot", "u-1"))
    stranger = TokenIssuer(store, new_signing_key(), clock)
    token, _ = stranger.issue(obj("bot", "u-1"))
    assert issuer.user_for(token) is None
    good, _ = issuer.issue(obj("bot", "u-1"))
    head, _, signature = good.split(".")
    claims = jwt.decode(good, options={"verify_signature": False})
    claims["sub"] = "system:serviceaccount:kube-system:admin"
    forged = jwt.encode(claims, "x" * 32, "HS256").split(".")
    for bad in (
        f"{head}.{forged[1]}.{signature}",
        ".".join(forged),
        jwt.encode(claims, "", "none"),
        good[:-4],
        "",
        "a.b.c",
    ):
        assert issuer.user_for(bad) is None
    await store.close()


async def test_token_bound_to_a_pod_is_invalid_after_the_pod_was_deleted(
    tmp_path: Path, clock: ManualClock
) -> None:
    store = Store.open(tmp_path / "s.db")
    issuer = TokenIssuer(store, new_signing_key(), clock)
    await put(store, "serviceaccounts", obj("bot", "u-1"))
    await put(store, "pods", obj("p", "u-2"))
    token, _ = issuer.issue(obj("bot", "u-1"), pod=obj("p", "u-2"))
    user = issuer.user_for(token)
    assert user is not None
    assert user.extra["authentication.kubernetes.io/pod-name"] == ["p"]
    await put(store, "pods", None, key="ml/p")
    assert issuer.user_for(token) is None
    await put(store, "pods", obj("p", "u-3"))
    assert issuer.user_for(token) is None, "the same name, but another pod"
    await store.close()


async def test_token_for_another_audience_is_refused(tmp_path: Path, clock: ManualClock) -> None:
    store = Store.open(tmp_path / "s.db")
    issuer = TokenIssuer(store, new_signing_key(), clock)
    await put(store, "serviceaccounts", obj("bot", "u-1"))
    token, _ = issuer.issue(obj("bot", "u-1"), audiences=["vault"])
    assert issuer.user_for(token) is None
    claims = issuer.verify(token)
    assert claims is not None
    assert claims["aud"] == ["vault"]
    both, _ = issuer.issue(obj("bot", "u-1"), audiences=["vault", ISSUER])
    assert issuer.user_for(both) is not None
    await store.close()

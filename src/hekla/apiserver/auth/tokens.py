"""Service-account tokens: signed, bound to an account (and optionally a pod), expiring.

A token is a JWT. Verification checks the signature, the expiry and the store: a token of an account
or pod that was deleted, or recreated with the same name, is invalid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jwt
import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from hekla.apiserver import errors
from hekla.apiserver.auth.authenticator import User, service_account_groups
from hekla.apiserver.storage.store import Store
from hekla.units.clock import Clock
from hekla.units.timestamps import format_time

if TYPE_CHECKING:
    from hekla.apiserver.registry.resources import Resources

ISSUER = "https://kubernetes.default.svc"
ALGORITHM = "EdDSA"
MIN_SECONDS = 600
MAX_SECONDS = 1 << 32
DEFAULT_SECONDS = 3600
_CACHE = 4096


def new_signing_key() -> bytes:
    """Return a new private key as PEM."""
    return Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


class TokenIssuer:
    """Issues and verifies service-account tokens."""

    def __init__(self, store: Store, key_pem: bytes, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        private = serialization.load_pem_private_key(key_pem, None)
        assert isinstance(private, Ed25519PrivateKey)
        self._private = private
        self._public = private.public_key()
        self._verified: dict[str, dict[str, Any]] = {}

    def issue(
        self,
        account: dict[str, Any],
        *,
        seconds: int = DEFAULT_SECONDS,
        audiences: list[str] | None = None,
        pod: dict[str, Any] | None = None,
    ) -> tuple[str, float]:
        """Return a token and its expiry."""
        now = int(self._clock.now())
        metadata = account["metadata"]
        private: dict[str, Any] = {
            "namespace": metadata["namespace"],
            "serviceaccount": {"name": metadata["name"], "uid": metadata["uid"]},
        }
        if pod is not None:
            private["pod"] = {"name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        claims = {
            "iss": ISSUER,
            "sub": f"system:serviceaccount:{metadata['namespace']}:{metadata['name']}",
            "aud": audiences or [ISSUER],
            "iat": now,
            "nbf": now,
            "exp": now + seconds,
            "kubernetes.io": private,
        }
        return jwt.encode(claims, self._private, ALGORITHM), now + seconds

    def answer(
        self, account: dict[str, Any], requested: dict[str, Any], resources: Resources
    ) -> dict[str, Any]:
        """Return the TokenRequest with its status."""
        spec = requested.get("spec") or {}
        seconds = spec.get("expirationSeconds")
        if seconds is None:
            seconds = DEFAULT_SECONDS
        name = account["metadata"]["name"]
        is_whole = isinstance(seconds, int) and not isinstance(seconds, bool)
        if not is_whole or not MIN_SECONDS <= seconds <= MAX_SECONDS:
            raise errors.invalid(
                "authentication.k8s.io",
                "TokenRequest",
                name,
                [
                    {
                        "reason": "FieldValueInvalid",
                        "message": f"Invalid value: {seconds!r}: may not specify a duration less "
                        "than 10 minutes or more than 2^32 seconds",
                        "field": "spec.expirationSeconds",
                    }
                ],
            )
        pod = self._bound_pod(account, spec.get("boundObjectRef"))
        audiences = spec.get("audiences") or [ISSUER]
        token, expires = self.issue(account, seconds=seconds, audiences=audiences, pod=pod)
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {
                "name": name,
                "namespace": account["metadata"]["namespace"],
                "creationTimestamp": resources.now(),
            },
            "spec": {**spec, "audiences": audiences, "expirationSeconds": seconds},
            "status": {"token": token, "expirationTimestamp": format_time(expires)},
        }

    def _bound_pod(
        self, account: dict[str, Any], ref: dict[str, Any] | None
    ) -> dict[str, Any] | None:
        if not ref:
            return None
        if ref.get("kind") != "Pod":
            raise errors.bad_request(
                f"cannot bind token for serviceaccount to object of kind {ref.get('kind')!r}; "
                "only Pod is supported"
            )
        key = f"{account['metadata']['namespace']}/{ref.get('name')}"
        entry = self._store.get("pods", key)
        if entry is None:
            raise errors.not_found("", "pods", str(ref.get("name")))
        pod: dict[str, Any] = msgspec.json.decode(entry.body)
        if ref.get("uid") and ref["uid"] != pod["metadata"]["uid"]:
            raise errors.conflict(
                "",
                "pods",
                str(ref.get("name")),
                "the UID in the bound object reference does not match the UID in record",
            )
        return pod

    def user_for(self, token: str) -> User | None:
        """Return the account of a token; None if it is foreign or no longer valid."""
        claims = self.verify(token)
        if claims is None or ISSUER not in claims["aud"]:
            return None
        return self.user_of(claims)

    def user_of(self, claims: dict[str, Any]) -> User:
        private = claims["kubernetes.io"]
        namespace, account = private["namespace"], private["serviceaccount"]
        groups = service_account_groups(namespace)
        extra = {}
        if "pod" in private:
            extra = {
                "authentication.kubernetes.io/pod-name": [private["pod"]["name"]],
                "authentication.kubernetes.io/pod-uid": [private["pod"]["uid"]],
            }
        return User(claims["sub"], groups, account["uid"], extra)

    def verify(self, token: str) -> dict[str, Any] | None:
        """Return the claims of a valid token of any audience."""
        claims = self._verified.get(token)
        if claims is None:
            try:
                claims = jwt.decode(
                    token,
                    self._public,
                    algorithms=[ALGORITHM],
                    issuer=ISSUER,
                    # Times are checked below, by the injected clock.
                    options={"verify_aud": False, "verify_exp": False, "verify_nbf": False,
                             "verify_iat": False, "require": ["exp", "sub", "aud"]},
                )  # fmt: skip
            except jwt.PyJWTError:
                return None
            if len(self._verified) >= _CACHE:
                self._verified.clear()
            self._verified[token] = claims
        if claims["exp"] <= self._clock.now() or not self._alive(claims["kubernetes.io"]):
            self._verified.pop(token, None)
            return None
        return claims

    def _alive(self, private: dict[str, Any]) -> bool:
        namespace = private["namespace"]
        for table, what in (("serviceaccounts", "serviceaccount"), ("pods", "pod")):
            ref = private.get(what)
            if ref is None:
                continue
            entry = self._store.get(table, f"{namespace}/{ref['name']}")
            if entry is None or f'"{ref["uid"]}"'.encode() not in entry.body:
                return False
        return True

"""The service's certificates, in a Secret that all replicas share.

A replica that finds none, or expiring ones, creates new ones; the Secret's resourceVersion resolves
races. The CA is written to the webhook configurations.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from hekla.kube.client import Client
from hekla.kube.errors import AlreadyExists, Conflict
from hekla.kube.resources import SECRETS
from hekla.units.clock import Clock
from hekla.web.certificates import Pair, needs_renewal, new_authority, new_serving

_FIELDS = ("ca.crt", "ca.key", "tls.crt", "tls.key")
_TRIES = 10
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Certificates:
    authority: Pair
    serving: Pair


class CertificateSecret:
    """Reads, creates and renews the certificates in one Secret."""

    def __init__(self, client: Client, clock: Clock, namespace: str, name: str) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._name = name

    async def ensure(self, names: tuple[str, ...]) -> Certificates:
        """Return certificates for `names` that do not expire soon."""
        for _ in range(_TRIES):
            stored = await self._client.find(SECRETS, self._name, namespace=self._namespace)
            known = _read(stored) if stored else None
            renewed = self._renewed(known, names)
            if renewed is known:
                assert known is not None
                return known
            try:
                await self._store(stored, renewed)
            except (AlreadyExists, Conflict):
                continue  # another replica wrote first: read its certificates
            return renewed
        raise RuntimeError(
            f"the certificates in secret {self._namespace}/{self._name} keep changing; is another "
            "admission service using the same secret?"
        )

    def _renewed(self, known: Certificates | None, names: tuple[str, ...]) -> Certificates:
        now = self._clock.now()
        if known is None or needs_renewal(known.authority.certificate, now):
            authority = new_authority(now, "hekla-admission-ca")
            return Certificates(authority, new_serving(authority, names, now))
        if needs_renewal(known.serving.certificate, now, names):
            return Certificates(known.authority, new_serving(known.authority, names, now))
        return known

    async def _store(self, stored: Json | None, made: Certificates) -> None:
        values = (
            made.authority.certificate,
            made.authority.key,
            made.serving.certificate,
            made.serving.key,
        )
        data = {
            field: base64.b64encode(value).decode()
            for field, value in zip(_FIELDS, values, strict=True)
        }
        metadata: Json = {"name": self._name, "namespace": self._namespace}
        body = {"metadata": metadata, "type": "kubernetes.io/tls", "data": data}
        if stored is None:
            await self._client.create(SECRETS, body)
        else:
            await self._client.patch(
                SECRETS,
                self._name,
                {"data": data},
                namespace=self._namespace,
                expect=stored["metadata"]["resourceVersion"],
            )


def _read(secret: Json) -> Certificates | None:
    data = secret.get("data") or {}
    try:
        ca, ca_key, crt, key = (base64.b64decode(data[field]) for field in _FIELDS)
    except KeyError:
        return None
    return Certificates(Pair(ca, ca_key), Pair(crt, key))

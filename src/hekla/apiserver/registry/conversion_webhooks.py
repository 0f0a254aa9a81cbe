"""Conversion webhooks: convert custom objects between versions.

Objects are stored in one version and served in any. The objects of a request are converted in one
call (a list is one ConversionReview), then pruned and defaulted by the schema of the requested
version, as upstream on each read. Results are not cached: the webhook may change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from hekla.apiserver import errors
from hekla.apiserver.registry.identifiers import Identifiers
from hekla.apiserver.schema.kinds import Served
from hekla.apiserver.webhook_client import WebhookClient, WebhookError
from hekla.units.objects import Object

TIMEOUT_S = 30.0
MAX_RESPONSE_BYTES = 64 << 20
MUTABLE_METADATA = ("annotations", "labels")
"""Metadata that a conversion may change."""
_API = "apiextensions.k8s.io/v1"

encode = msgspec.json.encode
decode = msgspec.json.decode


class _Response(msgspec.Struct):
    uid: str = ""
    convertedObjects: list[Object] = []
    result: Object = {}


class _Review(msgspec.Struct):
    apiVersion: str = ""
    kind: str = ""
    response: _Response | None = None


class ConversionWebhooks:
    """Calls the conversion webhooks of CustomResourceDefinitions."""

    def __init__(self, webhook_client: WebhookClient, identifiers: Identifiers) -> None:
        self._callouts = webhook_client
        self._identifiers = identifiers

    async def prepare(self, view: Served, bodies: Iterable[bytes]) -> None:
        """Fill `view.converted` with these stored bytes in its version."""
        assert view.converted is not None
        view.converted.clear()
        others = {}
        for body in bodies:
            obj = decode(body)
            if obj["apiVersion"] != view.kind.api_version:
                others[body] = obj
        converted = await self.convert(view, list(others.values()))
        view.converted.update(zip(others, map(encode, converted), strict=True))

    async def convert(self, served: Served, objects: Sequence[Object]) -> list[Object]:
        """Return these objects in the version of `served`, in the same order."""
        if not objects:
            return []
        assert served.webhook is not None
        uid = self._identifiers.uid()
        request = {
            "uid": uid,
            "desiredAPIVersion": served.kind.api_version,
            "objects": list(objects),
        }
        body = encode({"apiVersion": _API, "kind": "ConversionReview", "request": request})
        config = served.webhook.get("clientConfig") or {}
        try:
            raw = await self._callouts.post(
                config, body, timeout_s=TIMEOUT_S, limit=MAX_RESPONSE_BYTES
            )
            converted = _validated(raw, uid, len(objects))
            results = [
                _with_server_metadata(served, *pair)
                for pair in zip(objects, converted, strict=True)
            ]
        except (WebhookError, ValueError) as error:
            source = objects[0].get("apiVersion", "")
            reason = f"failed: {error}" if isinstance(error, WebhookError) else str(error)
            text = f"conversion webhook for {source}, Kind={served.kind.kind} {reason}"
            raise errors.StatusError(500, "", text) from error
        for obj in results:
            served.structural_schema.check(obj)
        return results


def _validated(raw: bytes, uid: str, count: int) -> list[Object]:
    """Return the objects of a valid response; ValueError otherwise."""
    try:
        review = decode(raw, type=_Review)
    except msgspec.MsgspecError as error:
        raise ValueError(f"failed: the response is not a ConversionReview: {error}") from error
    response = review.response
    if response is None:
        raise ValueError("failed: no response provided")
    if (review.apiVersion, review.kind) != (_API, "ConversionReview"):
        raise ValueError(
            f"failed: expected {_API}, Kind=ConversionReview, got {review.apiVersion}, "
            f"Kind={review.kind}"
        )
    if response.uid != uid:
        raise ValueError(f'failed: expected response.uid="{uid}", got "{response.uid}"')
    if response.result.get("status") != "Success":
        message = response.result.get("message")
        raise ValueError(f"failed: {message or response.result.get('status')}")
    objects = response.convertedObjects
    if len(objects) != count:
        raise ValueError(f"returned {len(objects)} objects, expected {count}")
    return objects


def _with_server_metadata(served: Served, before: Object, after: Object) -> Object:
    """Return a converted object with the metadata that the webhook must not change."""
    want = (served.kind.api_version, before.get("kind"))
    if (after.get("apiVersion"), after.get("kind")) != want:
        raise ValueError(
            f"returned invalid object: {after.get('apiVersion')}, Kind={after.get('kind')}, "
            f"expected "
            f"{want[0]}, Kind={want[1]}"
        )
    was, now = before["metadata"], after.get("metadata")
    if not isinstance(now, dict):
        raise ValueError("returned invalid object: it has no metadata")
    for name in ("name", "namespace", "uid"):
        if now.get(name) != was.get(name):
            raise ValueError(
                f"returned invalid object: must have the same {name}: {was.get(name)} != "
                f"{now.get(name)}"
            )
    free = {name: now[name] for name in MUTABLE_METADATA if now.get(name)}
    kept = {name: value for name, value in was.items() if name not in MUTABLE_METADATA}
    return {**after, "metadata": {**kept, **free}}

"""AdmissionReview requests to responses. Pure functions.

The rules are those of `hekla.api.volcano`, which the embedded server calls in-process. The patch of
a response is what defaulting changed.
"""

from __future__ import annotations

from collections.abc import Collection
from copy import deepcopy
from typing import Any

import jsonpatch
import msgspec

from hekla.api import volcano
from hekla.api.rules import causes, summary
from hekla.api.volcano import View, access
from hekla.units.documents import MAX_DEPTH, is_text_too_deep

Json = dict[str, Any]
API_VERSION = "admission.k8s.io/v1"


class InvalidReview(ValueError):
    """The body is not a valid AdmissionReview."""


def read(body: bytes) -> Json:
    """The `request` of a review."""
    try:
        review = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidReview(f"the body is not JSON: {error}") from error
    if is_text_too_deep(body, review):
        raise InvalidReview(f"the body is nested deeper than {MAX_DEPTH} levels")
    if not isinstance(review, dict) or review.get("kind") != "AdmissionReview":
        raise InvalidReview("the body is not an AdmissionReview")
    if review.get("apiVersion") != API_VERSION:
        raise InvalidReview(f"only {API_VERSION} is supported, not {review.get('apiVersion')!r}")
    request = review.get("request")
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str):
        raise InvalidReview("the review has no request with a uid")
    return request


def mutate(request: Json, view: View, trusted: Collection[str] = ()) -> Json:
    """Apply defaults and record the submitting user; the response has a JSON patch.

    The webhook configurations select the operations (`webhooks.HOOKS`). Members of the groups in
    `trusted` may name another user.
    """
    obj = _object(request, "object")
    completed = deepcopy(obj)
    volcano.default(completed, view)
    user, kind = request.get("userInfo"), request.get("kind")
    if isinstance(user, dict) and isinstance(kind, dict) and user.get("username"):
        is_trusted = not set(trusted).isdisjoint(user.get("groups") or ())
        old = request.get("oldObject") or None
        names = (str(kind.get("group", "")), str(kind.get("kind", "")))
        access.record_submitter(*names, completed, old, user["username"], is_trusted=is_trusted)
    operations = jsonpatch.make_patch(obj, completed).patch
    return _answer(request, patch=operations)


def validate(request: Json, view: View) -> Json:
    """Allow or deny, with all violated rules."""
    operation = str(request.get("operation", "")).lower()
    old = _object(request, "oldObject") if operation in ("update", "delete") else None
    obj = old if operation == "delete" else _object(request, "object")
    assert obj is not None
    if operation == "update" and "deletionTimestamp" in (obj.get("metadata") or {}):
        return _answer(request)  # being deleted: only finalizers change
    before = None if operation == "delete" else old
    field_errors = volcano.first_errors(operation, obj, before, view)
    if not field_errors:
        return _answer(request)
    name = (obj.get("metadata") or {}).get("name") or ""
    kind = obj.get("kind", "")
    status = {
        "status": "Failure",
        "reason": "Invalid",
        "code": 422,
        "message": summary(kind, name, field_errors),
        "details": {"name": name, "kind": kind, "causes": causes(field_errors)},
    }
    return _answer(request, refused=status)


_QUEUE_FIELDS = ("spec.queue", "spec.parent", "metadata.name")


def depends_on_queues(answer: Json) -> bool:
    """Return whether a review was refused for the state of queues."""
    status = answer["response"].get("status") or {}
    found = (status.get("details") or {}).get("causes") or ()
    return any(cause["field"] in _QUEUE_FIELDS for cause in found)


def deleted_queue(request: Json) -> str | None:
    """Return the name of the queue that a request deletes."""
    old = request.get("oldObject")
    if request.get("operation") != "DELETE" or not isinstance(old, dict):
        return None
    if (old.get("apiVersion"), old.get("kind")) != volcano.QUEUE:
        return None
    # Not the name of the request: it is empty if a collection is deleted.
    return str((old.get("metadata") or {}).get("name") or "") or None


def _object(request: Json, field: str) -> Json:
    obj = request.get(field)
    if not isinstance(obj, dict):
        raise InvalidReview(f"the review has no {field}")
    obj.setdefault("metadata", {})
    obj.setdefault("spec", {})
    return obj


def _answer(request: Json, *, patch: list[Json] | None = None, refused: Json | None = None) -> Json:
    response: Json = {"uid": request["uid"], "allowed": refused is None}
    if refused is not None:
        response["status"] = refused
    if patch:
        response["patchType"] = "JSONPatch"
        # bytes are encoded as base64, as the API requires
        response["patch"] = msgspec.json.encode(patch)
    return {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response}

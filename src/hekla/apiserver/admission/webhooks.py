"""Admission webhooks: find the webhooks that cover a write, and call them.

Configurations are compiled when they are written. Webhooks that cover a resource and an operation
are looked up once and cached. Without configurations a write costs one look at an empty tuple.

Mutating webhooks are called one after the other, ordered by the name of their configuration; with
`reinvocationPolicy: IfNeeded` again if a later one changed the object. Validating webhooks are
called concurrently, and the first refusal in order is returned.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from hekla.apiserver import cel, errors
from hekla.apiserver.admission.match_conditions import MatchConditions, request_variable, variables
from hekla.apiserver.admission.matching import (
    EXEMPT_GROUP,
    AdmissionRequest,
    Rule,
    Selectors,
    matched,
)
from hekla.apiserver.schema.kinds import Served
from hekla.apiserver.storage.watch_cache import Event
from hekla.apiserver.webhook_client import WebhookClient, WebhookError
from hekla.units import patches
from hekla.units.objects import Object

if TYPE_CHECKING:
    from hekla.apiserver.registry.resources import Resources

log = logging.getLogger("hekla.apiserver")

MUTATING = f"{EXEMPT_GROUP}/mutatingwebhookconfigurations"
VALIDATING = f"{EXEMPT_GROUP}/validatingwebhookconfigurations"
MAX_RESPONSE_BYTES = 8 << 20
_KNOWN_REVIEWS = ("v1", "v1beta1")
_WITHOUT_SIDE_EFFECTS = ("None", "NoneOnDryRun")


@dataclass(frozen=True, slots=True, eq=False)
class Hook:
    """One webhook of one configuration."""

    name: str
    configuration: str
    rules: tuple[Rule, ...]
    selectors: Selectors
    conditions: MatchConditions
    exact: bool
    fails_closed: bool
    timeout_s: float
    side_effects: str
    is_reinvoked: bool
    review_version: str
    client_config: Mapping[str, Any]

    @classmethod
    def read(cls, configuration: str, hook: Mapping[str, Any]) -> Hook:
        known = [v for v in hook.get("admissionReviewVersions") or () if v in _KNOWN_REVIEWS]
        return cls(
            hook["name"],
            configuration,
            tuple(map(Rule.read, hook.get("rules") or ())),
            Selectors.read(hook),
            MatchConditions.read(hook.get("matchConditions") or ()),
            hook.get("matchPolicy") == "Exact",
            hook.get("failurePolicy") != "Ignore",
            float(hook.get("timeoutSeconds") or 10),
            hook.get("sideEffects") or "Unknown",
            hook.get("reinvocationPolicy") == "IfNeeded",
            known[0] if known else "v1",
            hook["clientConfig"],
        )


@dataclass(slots=True)
class _Invocation:
    """A webhook to call, and the version of the object that it gets."""

    hook: Hook
    served: Served


class _Response(msgspec.Struct):
    uid: str = ""
    allowed: bool = False
    status: Object | None = None
    patch: str | None = None
    patchType: str | None = None
    warnings: list[str] | None = None


class _ReviewResponse(msgspec.Struct):
    response: _Response | None = None
    kind: str = ""
    apiVersion: str = ""


class InvalidResponse(Exception):
    """The response of a webhook is not a valid AdmissionReview."""


class Webhooks:
    """Calls all admission webhooks of the server."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._store = resources.store
        self._callouts = resources.webhook_client
        self._mutating: tuple[Hook, ...] = ()
        self._validating: tuple[Hook, ...] = ()
        self._covering: dict[tuple[Any, ...], tuple[_Invocation, ...]] = {}
        self._registry_revision = -1

    @property
    def webhook_client(self) -> WebhookClient:
        return self._callouts

    def subscribe(self) -> None:
        """Start to call configured webhooks."""
        for table in (MUTATING, VALIDATING):
            self._compile(table)
        self._store.subscribe(self._changed)

    def _changed(self, table: str, event: Event) -> None:
        if table in (MUTATING, VALIDATING):
            self._compile(table)

    def _compile(self, table: str) -> None:
        hooks: list[Hook] = []
        for _, entry in sorted(self._store.table(table).entries.items()):
            configuration = msgspec.json.decode(entry.body)
            name = configuration["metadata"]["name"]
            for hook in configuration.get("webhooks") or ():
                try:
                    hooks.append(Hook.read(name, hook))
                except (cel.Refused, KeyError, ValueError) as error:
                    # Invalid at creation is refused; the evaluator may have been uninstalled since.
                    log.error("webhook %s of %s is not called: %s", hook.get("name"), name, error)
        if table == MUTATING:
            self._mutating = tuple(hooks)
        else:
            self._validating = tuple(hooks)
        self._covering.clear()

    def covers(self, operation: str, served: Served, subresource: str) -> bool:
        """Return whether a webhook covers this operation."""
        if not self._mutating and not self._validating:
            return False
        return bool(
            self._invocations(True, operation, served, subresource)
            or self._invocations(False, operation, served, subresource)
        )

    def _invocations(
        self, mutating: bool, operation: str, served: Served, subresource: str
    ) -> tuple[_Invocation, ...]:
        registry = self._resources.registry
        if self._registry_revision != registry.revision:
            self._covering.clear()
            self._registry_revision = registry.revision
        kind = served.kind
        key = (mutating, operation, kind.group, kind.version, kind.plural, subresource)
        invocations = self._covering.get(key)
        if invocations is None:
            invocations = self._covering[key] = self._find(mutating, operation, served, subresource)
        return invocations

    def _find(
        self, mutating: bool, operation: str, served: Served, subresource: str
    ) -> tuple[_Invocation, ...]:
        if served.kind.group == EXEMPT_GROUP:
            return ()
        versions = [served, *self._resources.registry.equivalents(served)]
        invocations = []
        for hook in self._mutating if mutating else self._validating:
            seen = matched(hook.rules, operation, versions, subresource, exact=hook.exact)
            if seen is not None:
                invocations.append(_Invocation(hook, seen))
        return tuple(invocations)

    # Calls

    async def mutate(self, review: AdmissionRequest) -> bool:
        """Call mutating webhooks; return whether any changed `review.obj`."""
        invocations = self._invocations(True, review.operation, review.served, review.subresource)
        changed = False
        called: list[tuple[_Invocation, int]] = []
        version = 0
        for invocation in invocations:
            if self._matches(invocation.hook, review):
                if await self._mutate_once(invocation, review):
                    changed, version = True, version + 1
                called.append((invocation, version))
        for invocation, seen in called:
            if (
                invocation.hook.is_reinvoked
                and version > seen
                and self._matches(invocation.hook, review)
            ):
                changed |= await self._mutate_once(invocation, review)
        return changed

    async def validate(self, review: AdmissionRequest) -> None:
        """Call validating webhooks; raise the first refusal in their order."""
        invocations = self._invocations(False, review.operation, review.served, review.subresource)
        wanted = [
            invocation for invocation in invocations if self._matches(invocation.hook, review)
        ]
        if not wanted:
            return
        outcomes = await asyncio.gather(
            *(self._call(invocation, review, mutating=False) for invocation in wanted),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    def _matches(self, hook: Hook, review: AdmissionRequest) -> bool:
        if not hook.selectors.match(review, self._store):
            return False
        if not hook.conditions.programs:
            return True
        try:
            return hook.conditions.hold(variables(review))
        except cel.Failed as error:
            if not hook.fails_closed:
                return False
            kind = review.served.kind
            raise errors.forbidden(kind.group, kind.plural, review.name, str(error)) from error

    async def _mutate_once(self, invocation: _Invocation, review: AdmissionRequest) -> bool:
        response = await self._call(invocation, review, mutating=True)
        if response is None or response.patch is None:
            return False
        hook = invocation.hook
        if review.obj is None:
            raise errors.internal(
                f'admission webhook "{hook.name}" attempted to modify the object, which is not '
                "supported for this operation"
            )
        try:
            patch = msgspec.json.decode(base64.b64decode(response.patch, validate=True))
            shown = await self._in_hook_version(invocation, review, review.obj)
            patched = patches.json_patch(shown, patch)
            if not isinstance(patched, dict):
                raise ValueError("the patched object is not an object")
        except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
            message = f"received undecodable patch in webhook response: {error}"
            self._fail(hook, message)
            return False
        back = await self._in_request_version(invocation, review, patched)
        if back == review.obj:
            return False
        review.obj.clear()
        review.obj.update(back)
        return True

    async def _call(
        self, invocation: _Invocation, review: AdmissionRequest, *, mutating: bool
    ) -> _Response | None:
        """Return the response of a webhook that allows; None if it failed and `failurePolicy`
        ignores it."""
        hook = invocation.hook
        if review.options.dry_run and hook.side_effects not in _WITHOUT_SIDE_EFFECTS:
            raise errors.bad_request(f'admission webhook "{hook.name}" does not support dry run')
        uid = self._resources.new_uid()
        try:
            body = msgspec.json.encode(await self._review_body(invocation, review, uid))
            raw = await self._callouts.post(
                hook.client_config, body, timeout_s=hook.timeout_s, limit=MAX_RESPONSE_BYTES
            )
            response = _validated(raw, uid, hook.review_version, mutating=mutating)
        except WebhookError as error:
            self._fail(hook, f"failed to call webhook: {error}")
            return None
        except InvalidResponse as error:
            self._fail(hook, f"received invalid webhook response: {error}")
            return None
        review.options.warnings.extend(response.warnings or ())
        if not response.allowed:
            raise _denial(hook.name, response.status)
        return response

    def _fail(self, hook: Hook, why: str) -> None:
        """Refuse the write or log, by the webhook's `failurePolicy`."""
        if hook.fails_closed:
            raise errors.internal(f'failed calling webhook "{hook.name}": {why}')
        log.warning('failed calling webhook "%s", which may be ignored: %s', hook.name, why)

    async def _review_body(
        self, invocation: _Invocation, review: AdmissionRequest, uid: str
    ) -> Object:
        request = {"uid": uid, **request_variable(review)}
        seen = invocation.served
        if seen is not review.served:
            kind = seen.kind
            request["resource"] = {
                "group": kind.group,
                "version": kind.version,
                "resource": kind.plural,
            }
            if review.is_own_kind:
                request["kind"] = {"group": kind.group, "version": kind.version, "kind": kind.kind}
        for name, obj in (("object", review.obj), ("oldObject", review.old)):
            request[name] = (
                None if obj is None else await self._in_hook_version(invocation, review, obj)
            )
        return {
            "kind": "AdmissionReview",
            "apiVersion": f"admission.k8s.io/{invocation.hook.review_version}",
            "request": request,
        }

    async def _in_hook_version(
        self, invocation: _Invocation, review: AdmissionRequest, obj: Object
    ) -> Object:
        """Return the object in the version of the webhook's rule."""
        if invocation.served is review.served or not review.is_own_kind:
            return obj
        return await self._resources.in_version(invocation.served, obj)

    async def _in_request_version(
        self, invocation: _Invocation, review: AdmissionRequest, obj: Object
    ) -> Object:
        """Return the object in the version of the request."""
        if invocation.served is review.served or not review.is_own_kind:
            return obj
        return await self._resources.in_version(review.served, obj)


def _validated(raw: bytes, uid: str, version: str, *, mutating: bool) -> _Response:
    """Decode and validate an AdmissionReview as kube-apiserver does."""
    try:
        review = msgspec.json.decode(raw, type=_ReviewResponse)
    except msgspec.MsgspecError as error:
        raise InvalidResponse(f"not an AdmissionReview: {error}") from error
    response = review.response
    if response is None:
        raise InvalidResponse("webhook response was absent")
    if version == "v1":
        if response.uid != uid:
            raise InvalidResponse(f'expected response.uid="{uid}", got "{response.uid}"')
        want = ("admission.k8s.io/v1", "AdmissionReview")
        if (review.apiVersion, review.kind) != want:
            raise InvalidResponse(
                f"expected webhook response of {want[0]}, Kind={want[1]}, got "
                f"{review.apiVersion}, Kind={review.kind}"
            )
    if not mutating:
        if response.patch:
            raise InvalidResponse("validating webhook may not return response.patch")
        if response.patchType:
            raise InvalidResponse("validating webhook may not return response.patchType")
    elif response.patch and response.patchType != "JSONPatch":
        if not response.patchType:
            if version == "v1":
                raise InvalidResponse("webhook returned response.patch but not response.patchType")
        else:
            raise InvalidResponse(
                f'webhook returned invalid response.patchType of "{response.patchType}"'
            )
    elif response.patchType and not response.patch:
        raise InvalidResponse("webhook returned response.patchType but not response.patch")
    return response


def _denial(name: str, status: Object | None) -> errors.StatusError:
    """Return the webhook's status as an error of the server."""
    status = status or {}
    message = status.get("message") or status.get("reason")
    by = f'admission webhook "{name}" denied the request'
    code = status.get("code") or 0
    return errors.StatusError(
        code if isinstance(code, int) and code >= 400 else 400,
        str(status.get("reason") or ""),
        f"{by}: {message}" if message else f"{by} without explanation",
        status.get("details"),
    )

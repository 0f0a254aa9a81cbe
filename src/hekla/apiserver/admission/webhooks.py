"""Webhook configurations at work: which hooks a write concerns, and asking them.

Configurations are compiled when they are written, into hooks in the order they are called in; which
of them cover a resource and an operation is found once and kept. While there are none, a write
pays for one look at an empty tuple.

Mutating hooks are called one after the other, by the name of their configuration; those that ask
for it (`reinvocationPolicy: IfNeeded`) a second time if the object changed after their turn.
Validating hooks are called all at once, and the first of them that refuses, in order, is quoted.
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
from hekla.apiserver.admission.conditions import Conditions, facts, request_facts
from hekla.apiserver.admission.review import EXEMPT_GROUP, Review, Rule, Selectors, matched
from hekla.apiserver.callouts import CallFailed, Callouts
from hekla.apiserver.history import Event
from hekla.apiserver.registry import Served
from hekla.units import patches
from hekla.units.objects import Object

if TYPE_CHECKING:
    from hekla.apiserver.resources import Resources

log = logging.getLogger("hekla.apiserver")

MUTATING = f"{EXEMPT_GROUP}/mutatingwebhookconfigurations"
VALIDATING = f"{EXEMPT_GROUP}/validatingwebhookconfigurations"
MAX_ANSWER = 8 << 20
_KNOWN_REVIEWS = ("v1", "v1beta1")
_WITHOUT_SIDE_EFFECTS = ("None", "NoneOnDryRun")


@dataclass(frozen=True, slots=True, eq=False)
class Hook:
    """One webhook of one configuration."""

    name: str
    configuration: str
    rules: tuple[Rule, ...]
    selectors: Selectors
    conditions: Conditions
    exact: bool
    fails_closed: bool
    timeout_s: float
    side_effects: str
    again: bool
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
            Conditions.read(hook.get("matchConditions") or ()),
            hook.get("matchPolicy") == "Exact",
            hook.get("failurePolicy") != "Ignore",
            float(hook.get("timeoutSeconds") or 10),
            hook.get("sideEffects") or "Unknown",
            hook.get("reinvocationPolicy") == "IfNeeded",
            known[0] if known else "v1",
            hook["clientConfig"],
        )


@dataclass(slots=True)
class _Turn:
    """A hook to be called, and the version of the object it is to see."""

    hook: Hook
    served: Served


class _Answer(msgspec.Struct):
    uid: str = ""
    allowed: bool = False
    status: Object | None = None
    patch: str | None = None
    patchType: str | None = None
    warnings: list[str] | None = None


class _Reviewed(msgspec.Struct):
    response: _Answer | None = None
    kind: str = ""
    apiVersion: str = ""


class Refusal(Exception):
    """A hook could not be asked, or answered nonsense."""


class Webhooks:
    """All hooks of one server."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._store = resources.store
        self._callouts = resources.callouts
        self._mutating: tuple[Hook, ...] = ()
        self._validating: tuple[Hook, ...] = ()
        self._covering: dict[tuple[Any, ...], tuple[_Turn, ...]] = {}
        self._registry_revision = -1

    @property
    def callouts(self) -> Callouts:
        return self._callouts

    def follow(self) -> None:
        """Call what is configured, from now on."""
        for table in (MUTATING, VALIDATING):
            self._compile(table)
        self._store.subscribe(self._changed)

    def _changed(self, table: str, event: Event) -> None:
        if table in (MUTATING, VALIDATING):
            self._compile(table)

    def _compile(self, table: str) -> None:
        found: list[Hook] = []
        for _, entry in sorted(self._store.table(table).entries.items()):
            configuration = msgspec.json.decode(entry.body)
            name = configuration["metadata"]["name"]
            for hook in configuration.get("webhooks") or ():
                try:
                    found.append(Hook.read(name, hook))
                except (cel.Refused, KeyError, ValueError) as error:
                    # Refused at creation; the evaluator may have been uninstalled since.
                    log.error("webhook %s of %s is not called: %s", hook.get("name"), name, error)
        if table == MUTATING:
            self._mutating = tuple(found)
        else:
            self._validating = tuple(found)
        self._covering.clear()

    def concern(self, operation: str, served: Served, subresource: str) -> bool:
        """Whether any hook may want to know."""
        if not self._mutating and not self._validating:
            return False
        return bool(
            self._turns(True, operation, served, subresource)
            or self._turns(False, operation, served, subresource)
        )

    def _turns(
        self, mutating: bool, operation: str, served: Served, subresource: str
    ) -> tuple[_Turn, ...]:
        registry = self._resources.registry
        if self._registry_revision != registry.revision:
            self._covering.clear()
            self._registry_revision = registry.revision
        kind = served.kind
        key = (mutating, operation, kind.group, kind.version, kind.plural, subresource)
        turns = self._covering.get(key)
        if turns is None:
            turns = self._covering[key] = self._find(mutating, operation, served, subresource)
        return turns

    def _find(
        self, mutating: bool, operation: str, served: Served, subresource: str
    ) -> tuple[_Turn, ...]:
        if served.kind.group == EXEMPT_GROUP:
            return ()
        versions = [served, *self._resources.registry.equivalents(served)]
        turns = []
        for hook in self._mutating if mutating else self._validating:
            seen = matched(hook.rules, operation, versions, subresource, exact=hook.exact)
            if seen is not None:
                turns.append(_Turn(hook, seen))
        return tuple(turns)

    # Asking

    async def mutate(self, review: Review) -> bool:
        """Let hooks change `review.obj`; whether any did."""
        turns = self._turns(True, review.operation, review.served, review.subresource)
        changed = False
        called: list[tuple[_Turn, int]] = []
        version = 0
        for turn in turns:
            if self._wants(turn.hook, review):
                if await self._mutate_once(turn, review):
                    changed, version = True, version + 1
                called.append((turn, version))
        for turn, seen in called:
            if turn.hook.again and version > seen and self._wants(turn.hook, review):
                changed |= await self._mutate_once(turn, review)
        return changed

    async def validate(self, review: Review) -> None:
        """Raise the first refusal, in the order of the hooks."""
        turns = self._turns(False, review.operation, review.served, review.subresource)
        wanted = [turn for turn in turns if self._wants(turn.hook, review)]
        if not wanted:
            return
        found = await asyncio.gather(
            *(self._ask(turn, review, mutating=False) for turn in wanted), return_exceptions=True
        )
        for outcome in found:
            if isinstance(outcome, BaseException):
                raise outcome

    def _wants(self, hook: Hook, review: Review) -> bool:
        if not hook.selectors.match(review, self._store):
            return False
        if not hook.conditions.programs:
            return True
        try:
            return hook.conditions.hold(facts(review))
        except cel.Failed as error:
            if not hook.fails_closed:
                return False
            kind = review.served.kind
            raise errors.forbidden(kind.group, kind.plural, review.name, str(error)) from error

    async def _mutate_once(self, turn: _Turn, review: Review) -> bool:
        answer = await self._ask(turn, review, mutating=True)
        if answer is None or answer.patch is None:
            return False
        hook = turn.hook
        if review.obj is None:
            raise errors.internal(
                f'admission webhook "{hook.name}" attempted to modify the object, which is not '
                "supported for this operation"
            )
        try:
            patch = msgspec.json.decode(base64.b64decode(answer.patch, validate=True))
            shown = await self._shown(turn, review, review.obj)
            patched = patches.json_patch(shown, patch)
            if not isinstance(patched, dict):
                raise ValueError("the patched object is no object")
        except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
            said = f"received undecodable patch in webhook response: {error}"
            self._fail(hook, said)
            return False
        back = await self._asked_for(turn, review, patched)
        if back == review.obj:
            return False
        review.obj.clear()
        review.obj.update(back)
        return True

    async def _ask(self, turn: _Turn, review: Review, *, mutating: bool) -> _Answer | None:
        """The answer of a hook that allows; None when it failed and that is to be ignored."""
        hook = turn.hook
        if review.options.dry_run and hook.side_effects not in _WITHOUT_SIDE_EFFECTS:
            raise errors.bad_request(f'admission webhook "{hook.name}" does not support dry run')
        uid = self._resources.new_uid()
        try:
            body = msgspec.json.encode(await self._question(turn, review, uid))
            raw = await self._callouts.post(
                hook.client_config, body, timeout_s=hook.timeout_s, limit=MAX_ANSWER
            )
            answer = _checked(raw, uid, hook.review_version, mutating=mutating)
        except CallFailed as error:
            self._fail(hook, f"failed to call webhook: {error}")
            return None
        except Refusal as error:
            self._fail(hook, f"received invalid webhook response: {error}")
            return None
        review.options.warnings.extend(answer.warnings or ())
        if not answer.allowed:
            raise _denial(hook.name, answer.status)
        return answer

    def _fail(self, hook: Hook, why: str) -> None:
        """Refuse the write, or let it pass, as the hook's configuration has it."""
        if hook.fails_closed:
            raise errors.internal(f'failed calling webhook "{hook.name}": {why}')
        log.warning('failed calling webhook "%s", which may be ignored: %s', hook.name, why)

    async def _question(self, turn: _Turn, review: Review, uid: str) -> Object:
        request = {"uid": uid, **request_facts(review)}
        seen = turn.served
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
            request[name] = None if obj is None else await self._shown(turn, review, obj)
        return {
            "kind": "AdmissionReview",
            "apiVersion": f"admission.k8s.io/{turn.hook.review_version}",
            "request": request,
        }

    async def _shown(self, turn: _Turn, review: Review, obj: Object) -> Object:
        """The object in the version the hook asked for."""
        if turn.served is review.served or not review.is_own_kind:
            return obj
        return await self._resources.in_version(turn.served, obj)

    async def _asked_for(self, turn: _Turn, review: Review, obj: Object) -> Object:
        """And back again, in the version of the request."""
        if turn.served is review.served or not review.is_own_kind:
            return obj
        return await self._resources.in_version(review.served, obj)


def _checked(raw: bytes, uid: str, version: str, *, mutating: bool) -> _Answer:
    """An AdmissionReview, as strictly read as upstream reads it."""
    try:
        review = msgspec.json.decode(raw, type=_Reviewed)
    except msgspec.MsgspecError as error:
        raise Refusal(f"it is no AdmissionReview: {error}") from error
    answer = review.response
    if answer is None:
        raise Refusal("webhook response was absent")
    if version == "v1":
        if answer.uid != uid:
            raise Refusal(f'expected response.uid="{uid}", got "{answer.uid}"')
        want = ("admission.k8s.io/v1", "AdmissionReview")
        if (review.apiVersion, review.kind) != want:
            raise Refusal(
                f"expected webhook response of {want[0]}, Kind={want[1]}, got "
                f"{review.apiVersion}, Kind={review.kind}"
            )
    if not mutating:
        if answer.patch:
            raise Refusal("validating webhook may not return response.patch")
        if answer.patchType:
            raise Refusal("validating webhook may not return response.patchType")
    elif answer.patch and answer.patchType != "JSONPatch":
        if not answer.patchType:
            if version == "v1":
                raise Refusal("webhook returned response.patch but not response.patchType")
        else:
            raise Refusal(f'webhook returned invalid response.patchType of "{answer.patchType}"')
    elif answer.patchType and not answer.patch:
        raise Refusal("webhook returned response.patchType but not response.patch")
    return answer


def _denial(name: str, status: Object | None) -> errors.StatusError:
    """The hook's own status, said by the server."""
    status = status or {}
    said = status.get("message") or status.get("reason")
    by = f'admission webhook "{name}" denied the request'
    code = status.get("code") or 0
    return errors.StatusError(
        code if isinstance(code, int) and code >= 400 else 400,
        str(status.get("reason") or ""),
        f"{by}: {said}" if said else f"{by} without explanation",
        status.get("details"),
    )

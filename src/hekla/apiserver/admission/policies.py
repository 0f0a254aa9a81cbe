"""ValidatingAdmissionPolicy: validation rules in CEL.

A policy has the rules; a binding selects resources and parameters. Both are compiled when they are
written. Evaluation is in-process and does not await, so policies cost much less than webhooks.

Note: an expression that fails (a missing field, for example) is handled by `failurePolicy`; one
that is false is handled by the binding's `validationActions`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from hekla.apiserver import cel, errors
from hekla.apiserver.admission.match_conditions import VARIABLES, MatchConditions, variables
from hekla.apiserver.admission.matching import (
    EXEMPT_GROUP,
    AdmissionRequest,
    Rule,
    Selectors,
    matched,
    namespace_object,
)
from hekla.apiserver.schema.kinds import Served
from hekla.apiserver.storage.watch_cache import Event
from hekla.units.objects import Object
from hekla.units.selectors import LabelSelector

if TYPE_CHECKING:
    from hekla.apiserver.registry.resources import Resources

log = logging.getLogger("hekla.apiserver")

POLICIES = f"{EXEMPT_GROUP}/validatingadmissionpolicies"
BINDINGS = f"{EXEMPT_GROUP}/validatingadmissionpolicybindings"
MAX_MESSAGE = 5 * 1024
_CODES = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413, "Invalid": 422}


class Misconfigured(Exception):
    """The policy or binding cannot be evaluated; handled by `failurePolicy`."""


@dataclass(frozen=True, slots=True)
class Match:
    """The writes that a policy matches: rules, exceptions and selectors."""

    rules: tuple[Rule, ...] | None
    excluded: tuple[Rule, ...]
    selectors: Selectors
    exact: bool

    @classmethod
    def read(cls, match: Mapping[str, Any] | None) -> Match:
        match = match or {}
        rules = match.get("resourceRules")
        return cls(
            tuple(map(Rule.read, rules)) if rules else None,
            tuple(map(Rule.read, match.get("excludeResourceRules") or ())),
            Selectors.read(match),
            match.get("matchPolicy") == "Exact",
        )

    def covers(self, operation: str, versions: list[Served], subresource: str) -> Served | None:
        """Return the version of the object to evaluate, or None if no rule covers it."""
        if self.rules is None:
            return versions[0]
        return matched(self.rules, operation, versions, subresource, exact=self.exact)

    def holds(self, review: AdmissionRequest, versions: list[Served], resources: Resources) -> bool:
        """Check names, exceptions and labels, which `covers` does not."""
        if not self.selectors.match(review, resources.store):
            return False
        subresource, operation = review.subresource, review.operation
        for rule in self.excluded:
            if (not rule.names or review.name in rule.names) and matched(
                [rule], operation, versions, subresource, exact=self.exact
            ):
                return False
        if self.rules is None:
            return True
        return any(
            (not rule.names or review.name in rule.names)
            and matched([rule], operation, versions, subresource, exact=self.exact)
            for rule in self.rules
        )


@dataclass(frozen=True, slots=True)
class Validation:
    program: cel.Program
    message: str
    message_program: cel.Program | None
    reason: str

    def explain(self, values: Mapping[str, Any]) -> str:
        if self.message_program is not None:
            try:
                message = self.message_program.evaluate(values)
            except cel.Failed as error:
                log.info("messageExpression failed: %s", error)
                message = None
            if isinstance(message, str):
                text = message.strip()
                if text and "\n" not in text and len(text) <= MAX_MESSAGE:
                    return text
        return self.message.strip() or f"failed expression: {self.program.expression.strip()}"


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    name: str
    match: Match
    conditions: MatchConditions
    variables: tuple[tuple[str, cel.Program], ...]
    validations: tuple[Validation, ...]
    param_kind: tuple[str, str] | None
    fails_closed: bool

    @classmethod
    def read(cls, obj: Object) -> Policy:
        spec = obj["spec"]
        names = variables_of(spec)
        kind = spec.get("paramKind")
        return cls(
            obj["metadata"]["name"],
            Match.read(spec.get("matchConstraints")),
            MatchConditions.read(spec.get("matchConditions") or (), names),
            tuple(
                (variable["name"], cel.compile(variable["expression"], names, yields=""))
                for variable in spec.get("variables") or ()
            ),
            tuple(_validation(each, names) for each in spec.get("validations") or ()),
            (kind["apiVersion"], kind["kind"]) if kind else None,
            spec.get("failurePolicy") != "Ignore",
        )


def variables_of(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the CEL variables of a policy's expressions."""
    more = ("params",) if spec.get("paramKind") else ()
    return (*VARIABLES, "namespaceObject", "variables", *more)


def _validation(validation: Mapping[str, Any], names: tuple[str, ...]) -> Validation:
    text = validation.get("messageExpression")
    return Validation(
        cel.compile(validation["expression"], names),
        validation.get("message") or "",
        cel.compile(text, names, yields="STRING") if text else None,
        validation.get("reason") or "Invalid",
    )


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    name: str
    policy: str
    match: Match
    actions: tuple[str, ...]
    param_ref: Mapping[str, Any] | None

    @classmethod
    def read(cls, obj: Object) -> Binding:
        spec = obj["spec"]
        return cls(
            obj["metadata"]["name"],
            spec["policyName"],
            Match.read(spec.get("matchResources")),
            tuple(spec.get("validationActions") or ()),
            spec.get("paramRef"),
        )


@dataclass(frozen=True, slots=True)
class Denial:
    policy: Policy
    binding: Binding
    message: str
    reason: str = "Invalid"

    def error(self, review: AdmissionRequest) -> errors.StatusError:
        text = (
            f"ValidatingAdmissionPolicy '{self.policy.name}' with binding '{self.binding.name}' "
            f"denied request: {self.message}"
        )
        kind = review.served.kind
        made = errors.forbidden(kind.group, kind.plural, review.name, text)
        made.reason, made.code = self.reason, _CODES.get(self.reason, 422)
        made.details = {**(made.details or {}), "causes": [{"message": text}]}
        return made


class Policies:
    """Evaluates all policies of the server."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._store = resources.store
        self._bound: list[tuple[Policy, Binding]] = []
        self._covering: dict[tuple[Any, ...], bool] = {}
        self._registry_revision = -1

    def subscribe(self) -> None:
        self._compile()
        self._store.subscribe(self._changed)

    def _changed(self, table: str, event: Event) -> None:
        if table in (POLICIES, BINDINGS):
            self._compile()

    def _compile(self) -> None:
        policies: dict[str, Policy] = {}
        for entry in self._store.table(POLICIES).entries.values():
            try:
                policy = Policy.read(msgspec.json.decode(entry.body))
            except (cel.Refused, KeyError, ValueError) as error:
                # Invalid at creation is refused; the evaluator may have been uninstalled since.
                log.error("policy %s is not evaluated: %s", entry.key, error)
                continue
            policies[policy.name] = policy
        bindings = self._store.table(BINDINGS).entries.values()
        compiled = [Binding.read(msgspec.json.decode(entry.body)) for entry in bindings]
        self._bound = [
            (policies[binding.policy], binding)
            for binding in sorted(compiled, key=lambda b: (b.policy, b.name))
            if binding.policy in policies
        ]
        self._covering.clear()

    def covers(self, operation: str, served: Served, subresource: str) -> bool:
        if not self._bound or served.kind.group == EXEMPT_GROUP:
            return False
        registry = self._resources.registry
        if self._registry_revision != registry.revision:
            self._covering.clear()
            self._registry_revision = registry.revision
        kind = served.kind
        key = (operation, kind.group, kind.version, kind.plural, subresource)
        is_covered = self._covering.get(key)
        if is_covered is None:
            versions = self._versions(served)
            is_covered = self._covering[key] = any(
                policy.match.covers(operation, versions, subresource) for policy, _ in self._bound
            )
        return is_covered

    def _versions(self, served: Served) -> list[Served]:
        return [served, *self._resources.registry.equivalents(served)]

    # Evaluation

    async def validate(self, review: AdmissionRequest) -> None:
        """Raise the first denial; add warnings for bindings that warn."""
        if not self.covers(review.operation, review.served, review.subresource):
            return
        denials: list[Denial] = []
        versions = self._versions(review.served)
        for policy, binding in self._bound:
            seen = policy.match.covers(review.operation, versions, review.subresource)
            if seen is None or not policy.match.holds(review, versions, self._resources):
                continue
            if not binding.match.holds(review, versions, self._resources):
                continue
            for message, reason in await self._evaluate(policy, binding, review, seen):
                if "Deny" in binding.actions:
                    denials.append(Denial(policy, binding, message, reason))
                if "Warn" in binding.actions:
                    review.options.warnings.append(
                        f"Validation failed for ValidatingAdmissionPolicy '{policy.name}' with "
                        f"binding '{binding.name}': {message}"
                    )
        if denials:
            raise denials[0].error(review)

    async def _evaluate(
        self, policy: Policy, binding: Binding, review: AdmissionRequest, seen: Served
    ) -> list[tuple[str, str]]:
        """Return message and reason of each failed validation."""
        values = variables(review)
        if seen is not review.served and review.is_own_kind:
            for name in ("object", "oldObject"):
                if values[name] is not None:
                    values[name] = await self._resources.in_version(seen, values[name])
        is_namespace = review.served.storage == "namespaces"
        namespace = "" if is_namespace else review.namespace
        values["namespaceObject"] = namespace_object(self._store, namespace) if namespace else None
        try:
            params = self._params(policy, binding, review)
        except Misconfigured as error:
            said = f"failed to configure binding: {error}"
            return [(said, "Invalid")] if policy.fails_closed else []
        failures: list[tuple[str, str]] = []
        for param in params:
            failures += _evaluated(policy, {**values, "params": param})
        return failures

    def _params(
        self, policy: Policy, binding: Binding, review: AdmissionRequest
    ) -> list[Object | None]:
        """Return the parameter objects of a binding; [None] if the policy has no parameters."""
        if policy.param_kind is None or binding.param_ref is None:
            return [None]
        api_version, kind = policy.param_kind
        served = self._resources.registry.by_kind(api_version, kind)
        if served is None:
            raise Misconfigured(
                f"failed to find resource referenced by paramKind: '{api_version}, Kind={kind}'"
            )
        ref = binding.param_ref
        namespace = ref.get("namespace") or ""
        if served.kind.namespaced:
            namespace = namespace or review.namespace
            if not namespace:
                raise Misconfigured(
                    "cannot use namespaced paramRef in policy binding that matches "
                    "cluster-scoped resources"
                )
        elif namespace:
            raise Misconfigured("paramRef.namespace must not be provided for a cluster-scoped kind")
        params = list(self._referred(served, ref, namespace))
        if not params and ref.get("parameterNotFoundAction") == "Deny":
            raise Misconfigured(
                "no params found for policy binding with `Deny` parameterNotFoundAction"
            )
        return params

    def _referred(
        self, served: Served, ref: Mapping[str, Any], namespace: str
    ) -> Iterator[Object | None]:
        if ref.get("name"):
            entry = self._store.head(served.storage, served.key(namespace, ref["name"]))
            if entry is not None:
                yield msgspec.json.decode(served.serve(entry.body))
            return
        selector = LabelSelector.from_dict(ref.get("selector") or {})
        prefix = f"{namespace}/" if served.kind.namespaced else ""
        for entry in sorted(self._store.heads(served.storage, prefix), key=lambda e: e.key):
            obj = msgspec.json.decode(served.serve(entry.body))
            if selector.matches(obj["metadata"].get("labels") or {}):
                yield obj


def _evaluated(policy: Policy, values: Object) -> list[tuple[str, str]]:
    try:
        variables, broken = _variables(policy, values)
        values["variables"] = variables
        if not policy.conditions.hold(values):
            return []
    except cel.Failed as error:
        return [(str(error), "Invalid")] if policy.fails_closed else []
    failures = []
    for validation in policy.validations:
        try:
            if validation.program.holds(values):
                continue
            failures.append((validation.explain(values), validation.reason))
        except cel.Failed as error:
            if policy.fails_closed:
                text = validation.program.expression.strip()
                why = "; ".join([str(error), *broken])
                failures.append((f"expression '{text}' resulted in error: {why}", "Invalid"))
    return failures


def _variables(policy: Policy, values: Object) -> tuple[Object, list[str]]:
    """Return the variables' values; one that fails is missing and fails only its users."""
    made: Object = {}
    broken: list[str] = []
    for name, program in policy.variables:
        try:
            made[name] = program.evaluate({**values, "variables": made})
        except cel.Failed as error:
            broken.append(f"variable '{name}': {error}")
    return made, broken

"""Rules of webhook configurations, admission policies and their bindings.

Expressions are not compiled here: the evaluator is optional for the command line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from hekla.api.rules import names
from hekla.api.rules.fields import (
    TOO_MANY,
    FieldError,
    FieldErrors,
    between,
    duplicate,
    forbidden,
    invalid,
    one_of,
    required,
)
from hekla.api.rules.placement import label_selector
from hekla.units.objects import Object

REVIEW_VERSIONS: Final = ("v1", "v1beta1")
OPERATIONS: Final = ("*", "CREATE", "UPDATE", "DELETE", "CONNECT")
REASONS: Final = ("Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized")
MAX_CONDITIONS: Final = 64
_HTTPS: Final = "desired format: https://host[/path]"
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


# --- webhooks ---------------------------------------------------------------------------------


def webhooks(obj: Object, old: Object | None) -> FieldErrors:
    hooks = obj.get("webhooks") or []
    yield from names.unique("webhooks", hooks)
    for index, hook in enumerate(hooks):
        yield from _webhook(f"webhooks[{index}]", hook)


def _webhook(at: str, hook: Object) -> FieldErrors:
    name = hook.get("name")
    yield from names.checked(f"{at}.name", name, names.dns_subdomain)
    if name and name.count(".") < 2:
        yield invalid(
            f"{at}.name", name, "should be a domain with at least three segments separated by dots"
        )
    for number, rule in enumerate(hook.get("rules") or ()):
        yield from _rule(f"{at}.rules[{number}]", rule)
    yield from one_of(f"{at}.failurePolicy", hook.get("failurePolicy"), ("Fail", "Ignore"))
    yield from one_of(f"{at}.matchPolicy", hook.get("matchPolicy"), ("Exact", "Equivalent"))
    if "reinvocationPolicy" in hook:
        policy = hook["reinvocationPolicy"]
        yield from one_of(f"{at}.reinvocationPolicy", policy, ("IfNeeded", "Never"))
    if hook.get("sideEffects"):
        yield from one_of(f"{at}.sideEffects", hook["sideEffects"], ("None", "NoneOnDryRun"))
    else:
        yield required(f"{at}.sideEffects", "must specify one of None, NoneOnDryRun")
    yield from between(f"{at}.timeoutSeconds", hook.get("timeoutSeconds"), 1, 30)
    yield from _selectors(at, hook)
    yield from client_config(f"{at}.clientConfig", hook.get("clientConfig") or {})
    yield from _review_versions(f"{at}.admissionReviewVersions", hook)
    yield from _conditions(f"{at}.matchConditions", hook.get("matchConditions") or ())


def _review_versions(at: str, hook: Object) -> FieldErrors:
    versions = hook.get("admissionReviewVersions") or ()
    if not versions:
        yield required(at, "must specify one of v1, v1beta1")
    elif not set(versions) & set(REVIEW_VERSIONS):
        yield invalid(at, versions, "must include at least one of v1, v1beta1")


def client_config(at: str, client: Object) -> FieldErrors:
    """Check the address of a webhook: a URL or a Service."""
    url, service = client.get("url"), client.get("service")
    if bool(url) == bool(service):
        yield required(at, "exactly one of url or service is required")
    elif url:
        yield from _url(f"{at}.url", url)
    else:
        assert service is not None
        for field in ("name", "namespace"):
            if not service.get(field):
                yield required(f"{at}.service.{field}")
        if service.get("port") is not None:
            yield from between(f"{at}.service.port", service["port"], 1, 65535)
        path = service.get("path")
        if path and not path.startswith("/"):
            yield invalid(f"{at}.service.path", path, "must start with a '/'")


def _url(at: str, url: str) -> FieldErrors:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        yield required(at, f"url must be a valid URL: {error}; {_HTTPS}")
        return
    if parts.scheme != "https":
        yield invalid(at, parts.scheme, f"'https' is the only allowed URL scheme; {_HTTPS}")
    if not parts.hostname:
        yield invalid(at, parts.netloc, f"host must be specified; {_HTTPS}")
    if "@" in parts.netloc:
        yield invalid(at, parts.netloc.rpartition("@")[0], "user information is not permitted")
    if parts.fragment:
        yield invalid(at, parts.fragment, "fragments are not permitted in the URL")
    if parts.query:
        yield invalid(at, parts.query, "query parameters are not permitted in the URL")


def _rule(at: str, rule: Object) -> FieldErrors:
    operations = rule.get("operations") or ()
    if not operations:
        yield required(f"{at}.operations")
    if "*" in operations and len(operations) > 1:
        yield invalid(
            f"{at}.operations",
            operations,
            "if '*' is present, must not specify other operations",
        )
    for index, operation in enumerate(operations):
        yield from one_of(f"{at}.operations[{index}]", operation, OPERATIONS)
    for field in ("apiGroups", "apiVersions"):
        values = rule.get(field) or ()
        if not values:
            yield required(f"{at}.{field}")
        if "*" in values and len(values) > 1:
            yield invalid(
                f"{at}.{field}", values, "if '*' is present, must not specify other values"
            )
    yield from _resources(f"{at}.resources", rule.get("resources") or ())
    if rule.get("scope"):
        yield from one_of(f"{at}.scope", rule["scope"], ("*", "Cluster", "Namespaced"))


def _resources(at: str, resources: Sequence[str]) -> FieldErrors:
    if not resources:
        yield required(at)
    if "*/*" in resources and len(resources) > 1:
        yield invalid(at, resources, "if '*/*' is present, must not specify other resources")
    for index, resource in enumerate(resources):
        if not resource:
            yield required(f"{at}[{index}]")


def _selectors(at: str, match: Object) -> FieldErrors:
    for field in ("namespaceSelector", "objectSelector"):
        if match.get(field):
            yield from label_selector(f"{at}.{field}", match[field])


def _conditions(at: str, conditions: Sequence[Object]) -> FieldErrors:
    if len(conditions) > MAX_CONDITIONS:
        yield FieldError(TOO_MANY, at, f"must have at most {MAX_CONDITIONS} items", len(conditions))
    seen = set()
    for index, condition in enumerate(conditions):
        name = condition.get("name")
        if not name:
            yield required(f"{at}[{index}].name")
        elif name in seen:
            yield duplicate(f"{at}[{index}].name", name)
        seen.add(name)
        if not (condition.get("expression") or "").strip():
            yield required(f"{at}[{index}].expression")


# --- policies ---------------------------------------------------------------------------------


def policy(obj: Object, old: Object | None) -> FieldErrors:
    spec = obj.get("spec") or {}
    yield from one_of("spec.failurePolicy", spec.get("failurePolicy"), ("Fail", "Ignore"))
    kind = spec.get("paramKind")
    if kind is not None:
        for field in ("apiVersion", "kind"):
            if not kind.get(field):
                yield required(f"spec.paramKind.{field}")
    constraints = spec.get("matchConstraints")
    if constraints is None:
        yield required("spec.matchConstraints")
    else:
        if not constraints.get("resourceRules"):
            yield required("spec.matchConstraints.resourceRules")
        yield from _match_resources("spec.matchConstraints", constraints)
    yield from _conditions("spec.matchConditions", spec.get("matchConditions") or ())
    yield from _variables(spec.get("variables") or ())
    validations = spec.get("validations") or ()
    if not validations and not spec.get("auditAnnotations"):
        for field in ("validations", "auditAnnotations"):
            yield required(
                f"spec.{field}", "validations or auditAnnotations must contain at least one item"
            )
    for index, validation in enumerate(validations):
        yield from _validation(f"spec.validations[{index}]", validation)
    for index, annotation in enumerate(spec.get("auditAnnotations") or ()):
        for field in ("key", "valueExpression"):
            if not annotation.get(field):
                yield required(f"spec.auditAnnotations[{index}].{field}")


def _match_resources(at: str, match: Object) -> FieldErrors:
    yield from one_of(f"{at}.matchPolicy", match.get("matchPolicy"), ("Exact", "Equivalent"))
    yield from _selectors(at, match)
    for field in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(match.get(field) or ()):
            yield from _rule(f"{at}.{field}[{index}]", rule)


def _variables(variables: Sequence[Object]) -> FieldErrors:
    seen: set[Any] = set()
    for index, variable in enumerate(variables):
        at, name = f"spec.variables[{index}]", variable.get("name")
        if not name:
            yield required(f"{at}.name")
        elif not _IDENTIFIER.fullmatch(name):
            yield invalid(f"{at}.name", name, "name is not a valid CEL identifier")
        elif name in seen:
            yield duplicate(f"{at}.name", name)
        seen.add(name)
        if not (variable.get("expression") or "").strip():
            yield required(f"{at}.expression", "expression is not specified")


def _validation(at: str, validation: Object) -> FieldErrors:
    if not (validation.get("expression") or "").strip():
        yield required(f"{at}.expression", "expression is not specified")
    for field in ("message", "messageExpression"):
        text = validation.get(field)
        if text is not None and not text.strip():
            yield invalid(f"{at}.{field}", text, f"{field} must be non-empty if specified")
        elif field == "message" and text and "\n" in text:
            yield invalid(f"{at}.message", text, "message must not contain line breaks")
    if validation.get("reason"):
        yield from one_of(f"{at}.reason", validation["reason"], REASONS)


def binding(obj: Object, old: Object | None) -> FieldErrors:
    spec = obj.get("spec") or {}
    if not spec.get("policyName"):
        yield required("spec.policyName")
    yield from _param_ref(spec.get("paramRef"))
    if spec.get("matchResources") is not None:
        yield from _match_resources("spec.matchResources", spec["matchResources"])
    actions = spec.get("validationActions") or ()
    if not actions:
        yield required("spec.validationActions")
    for index, action in enumerate(actions):
        at = f"spec.validationActions[{index}]"
        yield from one_of(at, action, ("Audit", "Deny", "Warn"))
        if action in actions[:index]:
            yield duplicate(at, action)
    if "Deny" in actions and "Warn" in actions:
        yield invalid("spec.validationActions", actions, "must not contain both Deny and Warn")


def _param_ref(ref: Object | None) -> FieldErrors:
    if ref is None:
        return
    at = "spec.paramRef"
    if ref.get("name") and ref.get("selector") is not None:
        for field in ("name", "selector"):
            yield forbidden(f"{at}.{field}", "name and selector are mutually exclusive")
    elif not ref.get("name") and ref.get("selector") is None:
        yield required(at, "one of name or selector must be specified")
    if ref.get("selector"):
        yield from label_selector(f"{at}.selector", ref["selector"])
    action = ref.get("parameterNotFoundAction")
    if not action:
        yield required(f"{at}.parameterNotFoundAction")
    else:
        yield from one_of(f"{at}.parameterNotFoundAction", action, ("Allow", "Deny"))


_API: Final = "admissionregistration.k8s.io/v1"
TABLE = (
    (_API, "ValidatingWebhookConfiguration", webhooks),
    (_API, "MutatingWebhookConfiguration", webhooks),
    (_API, "ValidatingAdmissionPolicy", policy),
    (_API, "ValidatingAdmissionPolicyBinding", binding),
)

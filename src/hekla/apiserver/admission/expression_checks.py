"""Compile CEL expressions when the object that contains them is written.

Covers webhook configurations, policies and CustomResourceDefinitions. An update that does not
change an expression passes, so objects stay editable after the evaluator was uninstalled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hekla.api.rules import causes
from hekla.api.rules.fields import FieldError, invalid
from hekla.apiserver import cel, errors
from hekla.apiserver.admission.match_conditions import VARIABLES
from hekla.apiserver.admission.plugin import AdmissionPlugin, Attributes, RelatedWrite
from hekla.apiserver.admission.policies import POLICIES, variables_of
from hekla.apiserver.admission.webhooks import MUTATING, VALIDATING
from hekla.apiserver.auth.authenticator import SYSTEM
from hekla.apiserver.schema.crds import CRDS
from hekla.apiserver.schema.validation_rules import invalid_rules
from hekla.units.objects import Object

# Field, expression, the variables it may use, the type it must have.
FieldErrors = Iterator[tuple[str, str, tuple[str, ...], str]]


def _in_webhooks(configuration: Object) -> FieldErrors:
    for index, hook in enumerate(configuration.get("webhooks") or ()):
        for number, condition in enumerate(hook.get("matchConditions") or ()):
            at = f"webhooks[{index}].matchConditions[{number}].expression"
            yield at, condition["expression"], VARIABLES, "BOOL"


def _in_policy(policy: Object) -> FieldErrors:
    spec = policy.get("spec") or {}
    names = variables_of(spec)
    for field, key, yields in (
        ("matchConditions", "expression", "BOOL"),
        ("variables", "expression", ""),
        ("validations", "expression", "BOOL"),
        ("validations", "messageExpression", "STRING"),
        ("auditAnnotations", "valueExpression", ""),
    ):
        for index, item in enumerate(spec.get(field) or ()):
            if item.get(key):
                yield f"spec.{field}[{index}].{key}", item[key], names, yields


_WHERE: dict[str, Callable[[Object], FieldErrors]] = {
    MUTATING: _in_webhooks,
    VALIDATING: _in_webhooks,
    POLICIES: _in_policy,
}


class ExpressionChecks(AdmissionPlugin):
    def validate(self, attributes: Attributes) -> list[RelatedWrite]:
        storage = attributes.served.storage
        if attributes.verb == "delete" or (storage not in _WHERE and storage != CRDS):
            return []
        if storage == CRDS:
            # CRDs installed by the server are also validated in hekla.api, in case CEL is missing.
            if attributes.options.user is SYSTEM:
                return []
            was = {text for _, text, _ in _in_definition(attributes.old or {})}
            field_errors = [
                invalid(*each) for each in _in_definition(attributes.obj) if each[1] not in was
            ]
        else:
            find = _WHERE[storage]
            known = {text for _, text, *_ in find(attributes.old)} if attributes.old else set()
            field_errors = list(_refusals(find(attributes.obj), known))
        if field_errors:
            kind, name = attributes.served.kind, attributes.obj["metadata"].get("name", "")
            raise errors.invalid(kind.group, kind.kind, name, causes(field_errors))
        return []


def _in_definition(crd: Object) -> Iterator[tuple[str, str, str]]:
    for index, version in enumerate((crd.get("spec") or {}).get("versions") or ()):
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        yield from invalid_rules(schema, f"spec.versions[{index}].schema.openAPIV3Schema")


def _refusals(field_errors: FieldErrors, known: set[str]) -> Iterator[FieldError]:
    for field, text, variables, yields in field_errors:
        if text in known:
            continue
        try:
            cel.compile(text, variables, yields=yields)
        except cel.Refused as error:
            yield invalid(field, text, str(error))

"""Defaulting and validation of objects, built-in and custom."""

from __future__ import annotations

from hekla.api import defaults, rules, warnings
from hekla.apiserver import errors
from hekla.apiserver.registry.options import Options
from hekla.apiserver.schema import crds
from hekla.apiserver.schema.kinds import Served
from hekla.units.objects import Object


def apply_defaults(served: Served, obj: Object) -> None:
    if not served.custom:
        defaults.apply_defaults(obj)


def validate(served: Served, obj: Object, old: Object | None, options: Options) -> None:
    field_errors = rules.validate(obj, old)
    if field_errors:
        name = obj["metadata"].get("name", "")
        raise errors.invalid(served.kind.group, served.kind.kind, name, rules.causes(field_errors))
    check_rules(served, obj, old, options)
    for text in _warnings(served, obj, old):
        if text not in options.warnings:  # a write that calls webhooks is validated twice
            options.warnings.append(text)


def _warnings(served: Served, obj: Object, old: Object | None) -> list[str]:
    if served.storage == crds.CRDS:
        return crds.warnings(obj, old)
    return warnings.finalizers(obj, old) if served.custom else warnings.warnings(obj, old)


def check_rules(served: Served, obj: Object, old: Object | None, options: Options) -> None:
    """Check the CEL rules of a custom kind."""
    validations = served.validations
    if validations is None:
        return
    causes = list(validations.check(obj, old, "", options.warnings))
    if causes:
        name = obj["metadata"].get("name", "")
        raise errors.invalid(served.kind.group, served.kind.kind, name, causes)

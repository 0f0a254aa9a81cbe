"""Defaulting and validation of objects, built-in and custom."""

from __future__ import annotations

from hekla.api import defaults, rules
from hekla.apiserver import errors
from hekla.apiserver.registry.options import Options
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


def check_rules(served: Served, obj: Object, old: Object | None, options: Options) -> None:
    """Check the CEL rules of a custom kind."""
    validations = served.validations
    if validations is None:
        return
    causes = list(validations.check(obj, old, "", options.warnings))
    if causes:
        name = obj["metadata"].get("name", "")
        raise errors.invalid(served.kind.group, served.kind.kind, name, causes)

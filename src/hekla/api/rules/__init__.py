"""Validation of objects by kind: pure functions, shared by server and command line.

`validate` runs the metadata rules, then those of the kind. Kinds without rules (mostly custom
resources) have only the former; their schema does the rest. Volcano's kinds use `register`.

Note: rules rely on types being checked against the schema, and on defaults being applied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from hekla.api import kinds
from hekla.api.rules import admission, cluster, core, definitions, names, pods, workloads
from hekla.api.rules.fields import FieldError, FieldErrors, causes, summary

Rule: TypeAlias = Callable[[dict[str, Any], dict[str, Any] | None], FieldErrors]

_RULES: dict[tuple[str, str], Rule] = {}


def register(table: Iterable[tuple[str, str, Rule]]) -> None:
    """Register rules of more kinds: (apiVersion, kind, function). A kind may have only one."""
    for api_version, kind, rule in table:
        known = _RULES.setdefault((api_version, kind), rule)
        if known is not rule:
            raise ValueError(f"{api_version} {kind} already has rules: {known.__qualname__}")


def validate(obj: dict[str, Any], old: dict[str, Any] | None = None) -> list[FieldError]:
    """Return all errors of an object to be created, or to replace `old`."""
    api_version, kind = obj.get("apiVersion", ""), obj.get("kind", "")
    known = kinds.by_kind(api_version, kind)
    if known is not None and known.virtual:
        return []  # reviews are not stored and need no name
    errors = list(names.metadata(obj, old))
    rule = _RULES.get((api_version, kind))
    if rule is not None:
        errors.extend(rule(obj, old))
    return errors


for _table in (
    admission.TABLE,
    pods.TABLE,
    core.TABLE,
    workloads.TABLE,
    cluster.TABLE,
    definitions.TABLE,
):
    register(_table)

__all__ = ["FieldError", "FieldErrors", "Rule", "causes", "register", "summary", "validate"]

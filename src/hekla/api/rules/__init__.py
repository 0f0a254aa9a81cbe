"""Checks objects against the rules of their kind: pure functions, shared by server and CLI.

`validate` runs the rules that hold for all metadata, then those registered for the kind. Kinds
without any (custom resources, mostly) have only the former here; their schema does the rest.
Volcano's own kinds join by `register`.

The one thing a newcomer gets wrong: rules expect that types have been checked against the schema
and that defaults have been applied, in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from hekla.api import kinds
from hekla.api.rules import admission, cluster, core, definitions, names, pods, workloads
from hekla.api.rules.fields import FieldError, Found, causes, summary

Rule: TypeAlias = Callable[[dict[str, Any], dict[str, Any] | None], Found]

_RULES: dict[tuple[str, str], Rule] = {}


def register(table: Iterable[tuple[str, str, Rule]]) -> None:
    """Adds the rules of more kinds: (apiVersion, kind, function) each. A kind may have only one."""
    for api_version, kind, rule in table:
        known = _RULES.setdefault((api_version, kind), rule)
        if known is not rule:
            raise ValueError(f"{api_version} {kind} already has rules: {known.__qualname__}")


def validate(obj: dict[str, Any], old: dict[str, Any] | None = None) -> list[FieldError]:
    """Every broken rule of an object to be created, or to replace `old`; empty when all hold."""
    api_version, kind = obj.get("apiVersion", ""), obj.get("kind", "")
    known = kinds.by_kind(api_version, kind)
    if known is not None and known.virtual:
        return []  # questions are not stored and need no name
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

__all__ = ["FieldError", "Found", "Rule", "causes", "register", "summary", "validate"]

"""Expressions are refused when they are written, not when they are needed.

Whatever holds CEL (webhook configurations, policies, definitions) passes here; an update that
leaves an expression as it was is let through, so that an object can still be changed after the
evaluator was uninstalled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from hekla.api.rules import causes
from hekla.api.rules.fields import FieldError, invalid
from hekla.apiserver import cel, errors
from hekla.apiserver.admission.chain import Also, Attempt, Controller
from hekla.apiserver.admission.conditions import VARIABLES
from hekla.apiserver.admission.webhooks import MUTATING, VALIDATING

Object = dict[str, Any]
# Field, expression, the variables it may use, the type it must have.
Found = Iterator[tuple[str, str, tuple[str, ...], str]]


def _in_webhooks(configuration: Object) -> Found:
    for index, hook in enumerate(configuration.get("webhooks") or ()):
        for number, condition in enumerate(hook.get("matchConditions") or ()):
            at = f"webhooks[{index}].matchConditions[{number}].expression"
            yield at, condition["expression"], VARIABLES, "BOOL"


_WHERE: dict[str, Callable[[Object], Found]] = {
    MUTATING: _in_webhooks,
    VALIDATING: _in_webhooks,
}


class Expressions(Controller):
    def validate(self, attempt: Attempt) -> list[Also]:
        find = _WHERE.get(attempt.served.storage)
        if find is None or attempt.verb == "delete":
            return []
        known = {text for _, text, *_ in find(attempt.old)} if attempt.old else set()
        found = [error for error in _refusals(find(attempt.obj), known)]
        if found:
            kind, name = attempt.served.kind, attempt.obj["metadata"].get("name", "")
            raise errors.invalid(kind.group, kind.kind, name, causes(found))
        return []


def _refusals(found: Found, known: set[str]) -> Iterator[FieldError]:
    for field, text, variables, yields in found:
        if text in known:
            continue
        try:
            cel.compile(text, variables, yields=yields)
        except cel.Refused as error:
            yield invalid(field, text, str(error))

"""`x-kubernetes-validations` of a custom kind's schema: CEL rules at any level.

A schema is compiled into a tree of the nodes with rules, which is walked along the object and, on
update, along its old version: where both have a value, rules may use `oldSelf`. Items of a list
have an old version only if the list is a map.

Note: an update that does not change an invalid value passes with a warning, as upstream, so that
stricter rules do not block existing objects.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hekla.apiserver import cel

log = logging.getLogger("hekla.apiserver")

Json = Any
Cause = dict[str, str]

_HAD, _OLD = "__had_old", "__old"
_STRINGS: Final = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'")
_CHAIN: Final = re.compile(r"(?<![\w.])(?:self|oldSelf)((?:\.[A-Za-z_]\w*)+)(\s*\()?")
# Reserved words of CEL, and characters that its identifiers cannot have.
_RESERVED: Final = frozenset(
    "true false null in as break const continue else for function if import let loop package "  # noqa: SIM905
    "namespace return var void while".split()
)
_ESCAPES: Final = (
    ("__", "__underscores__"),
    (".", "__dot__"),
    ("-", "__dash__"),
    ("/", "__slash__"),
)
_OPENINGS: Final = {
    "FieldValueInvalid": "Invalid value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueRequired": "Required value",
    "FieldValueDuplicate": "Duplicate value",
}
_META: Final = ("apiVersion", "kind", "metadata")


@dataclass(slots=True)
class Rule:
    program: cel.Program
    text: str
    message: str
    explains: cel.Program | None
    reason: str
    field_path: str
    uses_old: bool
    old_is_optional: bool

    def values(self, value: Json, old: Json) -> dict[str, Json]:
        if self.old_is_optional:
            return {"self": value, _HAD: old is not None, _OLD: old}
        return {"self": value, "oldSelf": old} if self.uses_old else {"self": value}

    def cause(self, value: Json, old: Json, path: str, wrong: str = "") -> Cause:
        detail = wrong or self._message(value, old)
        opening = _OPENINGS[self.reason]
        if not isinstance(value, dict | list) and self.reason in (
            "FieldValueInvalid",
            "FieldValueDuplicate",
        ):
            shown = f'"{value}"' if isinstance(value, str) else str(value).lower()
            opening += f": {shown}"
        if self.field_path and not wrong:
            path += self.field_path if path else self.field_path.lstrip(".")
        return {
            "reason": self.reason,
            "message": f"{opening}: {detail}",
            "field": path or "<nil>",
        }

    def _message(self, value: Json, old: Json) -> str:
        if self.explains is not None:
            try:
                message = self.explains.evaluate({"self": value, "oldSelf": old})
                if isinstance(message, str) and message.strip() and "\n" not in message.strip():
                    return message.strip()
            except cel.Failed as error:
                log.info("messageExpression of %r failed: %s", self.text, error)
        return self.message.strip() or f"failed rule: {self.text.strip()}"


@dataclass(slots=True)
class ValidationRules:
    """The rules of a schema node and of the nodes below."""

    rules: list[Rule] = field(default_factory=list)
    children: dict[str, ValidationRules] = field(default_factory=dict)
    items: ValidationRules | None = None
    values: ValidationRules | None = None
    keys: tuple[str, ...] = ()
    """Keys of a list that is a map."""
    typed: _Typed | None = None

    @classmethod
    def read(cls, schema: Mapping[str, Any]) -> ValidationRules | None:
        """Compile the rules; None if there are none. A rule that does not compile is logged and
        left out: it was refused at creation, unless the evaluator was uninstalled since."""
        made = cls()
        for rule in schema.get("x-kubernetes-validations") or ():
            try:
                made.rules.append(compiled(rule))
            except cel.Refused as error:
                log.warning("rule %r is not evaluated: %s", rule.get("rule"), error)
        for name, inner in (schema.get("properties") or {}).items():
            child = cls.read(inner)
            if child is not None:
                made.children[name] = child
        if isinstance(schema.get("items"), dict):
            made.items = cls.read(schema["items"])
        if isinstance(schema.get("additionalProperties"), dict):
            made.values = cls.read(schema["additionalProperties"])
        if schema.get("x-kubernetes-list-type") == "map":
            made.keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
        if made.rules:
            made.typed = _Typed.read(schema)
        return made if made.rules or made.children or made.items or made.values else None

    def check(self, value: Json, old: Json, path: str, warnings: list[str]) -> Iterator[Cause]:
        """Yield the errors of a value; `old` is its old version or None."""
        if value is None:
            return
        yield from self._check_rules(value, old, path, warnings)
        if isinstance(value, dict):
            before = old if isinstance(old, dict) else {}
            for name, child in self.children.items():
                if name in value:
                    at = f"{path}.{name}" if path else name
                    yield from child.check(value[name], before.get(name), at, warnings)
            if self.values is not None:
                for name, inner in value.items():
                    at = f"{path}[{name}]"
                    yield from self.values.check(inner, before.get(name), at, warnings)
        elif isinstance(value, list) and self.items is not None:
            known = self._by_key(old)
            for index, inner in enumerate(value):
                was = known.get(self._key(inner))
                yield from self.items.check(inner, was, f"{path}[{index}]", warnings)

    def _check_rules(
        self, value: Json, old: Json, path: str, warnings: list[str]
    ) -> Iterator[Cause]:
        seen, before = value, old
        if self.typed is not None:
            seen, before = self.typed.shown(value), self.typed.shown(old)
        for rule in self.rules:
            if rule.uses_old and old is None and not rule.old_is_optional:
                continue
            try:
                if rule.program.holds(rule.values(seen, before)):
                    continue
                cause = rule.cause(seen, before, path)
            except cel.Failed as error:
                cause = rule.cause(
                    seen, before, path, f"{error} evaluating rule: {rule.message or rule.text}"
                )
            if old is not None and value == old and not rule.uses_old:
                warnings.append(f"{cause['field']}: {cause['message']}")
            else:
                yield cause

    def _key(self, item: Json) -> str:
        if not self.keys or not isinstance(item, dict):
            return ""
        return repr([item.get(key) for key in self.keys])

    def _by_key(self, old: Json) -> dict[str, Json]:
        if not self.keys or not isinstance(old, list):
            return {}
        return {self._key(item): item for item in old}


@dataclass(slots=True)
class _Typed:
    """The representation of a value for rules: a `number` is never an integer, and a field whose
    name is not a CEL identifier also has an escaped name. None if nothing below needs it."""

    is_number: bool = False
    children: dict[str, _Typed] = field(default_factory=dict)
    escaped: dict[str, str] = field(default_factory=dict)
    items: _Typed | None = None
    values: _Typed | None = None

    @classmethod
    def read(cls, schema: Mapping[str, Any]) -> _Typed | None:
        made = cls(is_number=schema.get("type") == "number")
        for name, inner in (schema.get("properties") or {}).items():
            child = cls.read(inner)
            if child is not None:
                made.children[name] = child
            if escape(name) != name:
                made.escaped[name] = escape(name)
        if isinstance(schema.get("items"), dict):
            made.items = cls.read(schema["items"])
        if isinstance(schema.get("additionalProperties"), dict):
            made.values = cls.read(schema["additionalProperties"])
        is_plain = not (
            made.is_number or made.children or made.escaped or made.items or made.values
        )
        return None if is_plain else made

    def shown(self, value: Json) -> Json:
        if isinstance(value, dict):
            made = dict(value)
            for name, child in self.children.items():
                if name in made:
                    made[name] = child.shown(made[name])
            if self.values is not None:
                made = {name: self.values.shown(inner) for name, inner in made.items()}
            for name, other in self.escaped.items():
                if name in made:
                    made[other] = made[name]
            return made
        if isinstance(value, list) and self.items is not None:
            return [self.items.shown(item) for item in value]
        if self.is_number and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        return value


def escape(name: str) -> str:
    """Return a field's CEL name: `a-b` is `a__dash__b`, `namespace` is `__namespace__`."""
    if name in _RESERVED:
        return f"__{name}__"
    for plain, escaped in _ESCAPES:
        name = name.replace(plain, escaped)
    return name


def compiled(rule: Mapping[str, Any]) -> Rule:
    """Compile a rule; raise cel.Refused if it is invalid."""
    text = rule.get("rule") or ""
    is_optional = bool(rule.get("optionalOldSelf"))
    explains = rule.get("messageExpression")
    uses_old = False
    if is_optional:
        # The evaluator does not accept an optional as input, but an expression can build one.
        cel.compile(text, ("self", "oldSelf"))
        bound = f"cel.bind(oldSelf, {_HAD} ? optional.of({_OLD}) : optional.none(), ({text}))"
        program, uses_old = cel.compile(bound, ("self", _HAD, _OLD)), True
    else:
        try:
            program = cel.compile(text, ("self",))
        except cel.Refused:
            program, uses_old = cel.compile(text, ("self", "oldSelf")), True
    return Rule(
        program,
        text,
        rule.get("message") or "",
        cel.compile(explains, ("self", "oldSelf"), yields="STRING") if explains else None,
        rule.get("reason") or "FieldValueInvalid",
        rule.get("fieldPath") or "",
        uses_old,
        is_optional,
    )


def invalid_rules(
    schema: Mapping[str, Any], path: str, *, root: bool = True
) -> Iterator[tuple[str, str, str]]:
    """Return (field, expression, reason) of each invalid rule of a schema."""
    for index, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
        at = f"{path}.x-kubernetes-validations[{index}]"
        try:
            compiled(rule)
            for key in ("rule", "messageExpression"):
                if rule.get(key):
                    _check_fields(rule[key], schema, root=root)
        except cel.Refused as error:
            yield f"{at}.rule", str(rule.get("rule") or ""), str(error)
    for name, inner in (schema.get("properties") or {}).items():
        yield from invalid_rules(inner, f"{path}.properties[{name}]", root=False)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from invalid_rules(schema[key], f"{path}.{key}", root=False)


def _check_fields(text: str, schema: Mapping[str, Any], *, root: bool) -> None:
    """Refuse `self.a.b` if the schema has no such field: the evaluator has no types."""
    for chain in _CHAIN.finditer(_STRINGS.sub("''", text)):
        here: Mapping[str, Any] = schema
        names = chain.group(1)[1:].split(".")
        if chain.group(2):
            names.pop()  # a method
        for depth, name in enumerate(names):
            fields = {escape(key): inner for key, inner in (here.get("properties") or {}).items()}
            is_embedded = here.get("x-kubernetes-embedded-resource")
            if name in _META and ((root and depth == 0) or is_embedded):
                break
            if name in fields:
                here = fields[name]
                continue
            if here.get("type") == "object" and "additionalProperties" not in here:
                raise cel.Refused(f"compilation failed: ERROR: undefined field '{name}'")
            break

"""Label and field selectors: parse, print, match.

Note: `tier!=db` and `tier notin (db)` also match objects without the label `tier`. A selector
object that is None selects nothing, while `{}` selects everything. Grammar, keys and values are
those of k8s.io/apimachinery.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, NoReturn, TypeAlias

from hekla.units.errors import SelectorError

__all__ = [
    "EVERYTHING",
    "NOTHING",
    "FieldSelector",
    "FieldTerm",
    "LabelSelector",
    "Requirement",
    "SelectorError",
    "escape_field_value",
    "label_key_problem",
    "label_value_problem",
    "parse_field_selector",
    "parse_label_selector",
]

Operator: TypeAlias = Literal["=", "==", "!=", "in", "notin", "exists", "!", ">", "<"]

_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_DNS_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_NAME_RE = re.compile(_NAME, re.ASCII)
_PREFIX_RE = re.compile(rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*", re.ASCII)
_INTEGER_RE = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_TOKEN_RE = re.compile(r"[ \t\r\n]*(==|!=|[=!(),><]|[^=!(),>< \t\r\n]+|$)")

_MAX_NAME: Final = 63
_MAX_PREFIX: Final = 253
_OBJECT_OPERATORS: Final[dict[str, Operator]] = {
    "In": "in",
    "NotIn": "notin",
    "Exists": "exists",
    "DoesNotExist": "!",
}


@lru_cache(maxsize=4096)  # objects share a few keys
def label_key_problem(key: str) -> str | None:
    """Return why a label (or annotation) key is invalid, or None: `example.com/name`, `name`."""
    prefix, slash, name = key.rpartition("/")
    if slash:
        if not prefix:
            return "the part before '/' is empty"
        if len(prefix) > _MAX_PREFIX:
            return f"the part before '/' is longer than {_MAX_PREFIX} characters"
        if not _PREFIX_RE.fullmatch(prefix):
            return f"the part before '/', {prefix!r}, is not a lowercase DNS name"
    if not name:
        return "the name is empty"
    if len(name) > _MAX_NAME:
        return f"the name is longer than {_MAX_NAME} characters"
    if not _NAME_RE.fullmatch(name):
        return (
            f"the name {name!r} may hold only letters, digits, '-', '_' and '.', "
            "and must begin and end with a letter or digit"
        )
    return None


def label_value_problem(value: str) -> str | None:
    """Return why a label value is invalid, or None. The empty value is valid."""
    if len(value) > _MAX_NAME:
        return f"is longer than {_MAX_NAME} characters"
    if value and not _NAME_RE.fullmatch(value):
        return (
            "may hold only letters, digits, '-', '_' and '.', "
            "and must begin and end with a letter or digit"
        )
    return None


def _int64(text: str) -> int | None:
    """Parse a number as Go's ParseInt: no spaces, no underscores, 64 bits."""
    if not _INTEGER_RE.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    @classmethod
    def checked(cls, key: str, operator: Operator, values: Iterable[str] = ()) -> Requirement:
        """Return a requirement; raise if the key or the values are invalid."""
        chosen = tuple(sorted(set(values)))
        if problem := label_key_problem(key):
            raise SelectorError(f"label key {key!r}: {problem}")
        count = len(chosen)
        if operator in ("in", "notin") and count == 0:
            raise SelectorError(f"label {key!r}: '{operator}' needs at least one value")
        if operator in ("exists", "!") and count:
            raise SelectorError(f"label {key!r}: a test for presence takes no values; drop them")
        if operator in ("=", "==", "!=", ">", "<") and count != 1:
            raise SelectorError(f"label {key!r}: '{operator}' needs exactly one value")
        if operator in (">", "<") and _int64(chosen[0]) is None:
            raise SelectorError(
                f"label {key!r}: '{operator}' compares integers, and {chosen[0]!r} is none"
            )
        for value in chosen:
            if problem := label_value_problem(value):
                raise SelectorError(f"label {key!r}: the value {value!r} {problem}")
        return cls(key, operator, chosen)

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "=" | "==" | "in":
                return value in self.values  # None is never among them
            case "!=" | "notin":
                return value not in self.values
            case "exists":
                return value is not None
            case "!":
                return value is None
        number = _int64(value) if value is not None else None
        limit = _int64(self.values[0])
        if number is None or limit is None:
            return False
        return number > limit if self.operator == ">" else number < limit

    def __str__(self) -> str:
        match self.operator:
            case "exists":
                return self.key
            case "!":
                return f"!{self.key}"
            case "in" | "notin":
                return f"{self.key} {self.operator} ({','.join(self.values)})"
        return f"{self.key}{self.operator}{self.values[0]}"


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All requirements must match; without requirements everything matches."""

    requirements: tuple[Requirement, ...] = ()
    matches_nothing: bool = False

    @staticmethod
    def parse(text: str) -> LabelSelector:
        """Parse the string form: `a=b,c!=d,e in (x,y),f notin (z),g,!h,i>1`."""
        return _parse_labels(text)

    @staticmethod
    def from_dict(selector: Mapping[str, Any] | None) -> LabelSelector:
        """Parse a `{matchLabels, matchExpressions}` object; None matches nothing, {} everything."""
        if selector is None:
            return NOTHING
        requirements = [
            Requirement.checked(_text(key, "a matchLabels key"), "=", [_text(value, key)])
            for key, value in (selector.get("matchLabels") or {}).items()
        ]
        for expression in selector.get("matchExpressions") or ():
            requirements.append(_from_expression(expression))
        return _in_order(requirements)

    @staticmethod
    def from_labels(labels: Mapping[str, str] | None) -> LabelSelector:
        """Return equality with all labels, as `spec.selector` of a Service; empty matches
        everything.
        """
        return LabelSelector(
            tuple(Requirement(key, "=", (value,)) for key, value in sorted((labels or {}).items()))
        )

    @property
    def matches_everything(self) -> bool:
        return not self.requirements and not self.matches_nothing

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Return whether an object with these labels matches; None means no labels."""
        if self.matches_nothing:
            return False
        held = labels or {}
        return all(requirement.matches(held) for requirement in self.requirements)

    def get(self, key: str) -> str | None:
        """Return the only value that the label may have, or None; for index lookups."""
        for requirement in self.requirements:
            if (
                requirement.key == key
                and requirement.operator in ("=", "==", "in")
                and len(requirement.values) == 1
            ):
                return requirement.values[0]
        return None

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


EVERYTHING: Final = LabelSelector()
NOTHING: Final = LabelSelector(matches_nothing=True)


def parse_label_selector(text: str) -> LabelSelector:
    """Same as `LabelSelector.parse`."""
    return _parse_labels(text)


def _in_order(requirements: Iterable[Requirement]) -> LabelSelector:
    return LabelSelector(tuple(sorted(requirements, key=lambda each: each.key)))


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise SelectorError(f"label {where!r}: {value!r} must be text; put it in quotes")
    return value


def _from_expression(expression: Any) -> Requirement:
    if not isinstance(expression, Mapping):
        raise SelectorError(f"matchExpressions: {expression!r} must have key and operator")
    key = _text(expression.get("key", ""), "key")
    operator = _OBJECT_OPERATORS.get(expression.get("operator", ""))
    if operator is None:
        raise SelectorError(
            f"label {key!r}: unknown operator {expression.get('operator')!r}; "
            f"use one of {', '.join(_OBJECT_OPERATORS)}"
        )
    values = [_text(value, key) for value in expression.get("values") or ()]
    return Requirement.checked(key, operator, values)


@lru_cache(maxsize=1024)  # controllers list and watch with the same few selectors
def _parse_labels(text: str) -> LabelSelector:
    return _in_order(_LabelParser(text).requirements())


class _LabelParser:
    """Parse tokens in one pass; words such as `in` are keywords only where one is expected."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        position = 0
        while position < len(text):
            match = _TOKEN_RE.match(text, position)
            assert match is not None  # the pattern covers every character
            self._tokens.append(match[1])
            position = match.end()
        if not self._tokens or self._tokens[-1]:
            self._tokens.append("")
        self._at = 0

    def requirements(self) -> list[Requirement]:
        found: list[Requirement] = []
        if self._peek() == "":
            return found
        while True:
            found.append(self._requirement())
            token = self._take()
            if token == "":
                return found
            if token != ",":
                self._reject(token, "',' or the end")

    def _requirement(self) -> Requirement:
        negated = self._peek() == "!"
        if negated:
            self._take()
        key = self._word("a label key")
        if negated:
            if self._peek() not in ("", ","):
                self._reject(self._peek(), f"nothing after '!{key}'")
            return Requirement.checked(key, "!")
        if self._peek() in ("", ","):
            return Requirement.checked(key, "exists")
        token = self._take()
        match token:
            case "in" | "notin":
                return Requirement.checked(key, token, self._value_list())
            case "=" | "==" | "!=" | ">" | "<":
                # `x=` requires the empty value
                value = "" if self._peek() in ("", ",") else self._word("a value")
                return Requirement.checked(key, token, [value])
        self._reject(token, "one of =, ==, !=, in, notin, >, <")

    def _value_list(self) -> list[str]:
        if (token := self._take()) != "(":
            self._reject(token, "'('")
        values: list[str] = []
        while True:
            # nothing between commas, or next to a parenthesis, is the empty value
            values.append("" if self._peek() in (",", ")") else self._word("a value"))
            token = self._take()
            if token == ")":
                return values
            if token != ",":
                self._reject(token, "',' or ')'")

    def _word(self, what: str) -> str:
        token = self._take()
        if token == "" or token[0] in "=!(),><":
            self._reject(token, what)
        return token

    def _peek(self) -> str:
        return self._tokens[self._at]

    def _take(self) -> str:
        token = self._tokens[self._at]
        if token:
            self._at += 1
        return token

    def _reject(self, token: str, expected: str) -> NoReturn:
        found = repr(token) if token else "the end"
        raise SelectorError(f"label selector {self._text!r}: found {found}, expected {expected}")


class FieldTerm(NamedTuple):
    """One comparison of a field's text with a value."""

    field: str
    operator: Literal["=", "!="]
    value: str

    def __str__(self) -> str:
        return f"{self.field}{self.operator}{escape_field_value(self.value)}"


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """All terms must match. The caller knows which fields exist."""

    terms: tuple[FieldTerm, ...] = ()

    @staticmethod
    def parse(text: str) -> FieldSelector:
        """Parse `metadata.name=x,status.phase!=Running`; a backslash escapes `,` and `=`."""
        return _parse_fields(text)

    @property
    def matches_everything(self) -> bool:
        return not self.terms

    def matches(self, getter: Callable[[str], str]) -> bool:
        """Return whether an object matches; `getter` reads its fields."""
        for field, operator, value in self.terms:
            if (getter(field) == value) != (operator == "="):
                return False
        return True

    def get(self, field: str) -> str | None:
        """Return the only value that the field may have, or None; for index lookups."""
        for term in self.terms:
            if term.field == field and term.operator == "=":
                return term.value
        return None

    def __str__(self) -> str:
        return ",".join(map(str, self.terms))


def parse_field_selector(text: str) -> FieldSelector:
    """Same as `FieldSelector.parse`."""
    return _parse_fields(text)


def escape_field_value(value: str) -> str:
    """Escape a text for the right side of a field selector."""
    return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")


@lru_cache(maxsize=1024)
def _parse_fields(text: str) -> FieldSelector:
    parts = re.findall(r"((?:\\.|\\\Z|[^,\\])*)(?:,|\Z)", text, re.DOTALL)
    return FieldSelector(tuple(_field_term(text, part) for part in sorted(parts) if part))


def _field_term(text: str, part: str) -> FieldTerm:
    match = re.search(r"!=|==|=", part)
    if match is None:
        raise SelectorError(f"field selector {text!r}: {part!r} is not of the form field=value")
    value = _unescape(text, part[match.end() :])
    return FieldTerm(part[: match.start()], "!=" if match[0] == "!=" else "=", value)


def _unescape(text: str, value: str) -> str:
    def literal(match: re.Match[str]) -> str:
        if match[0] in ("\\\\", "\\,", "\\="):
            return match[0][1]
        if match[0] == "=":
            raise SelectorError(f"field selector {text!r}: write '=' inside a value as '\\='")
        raise SelectorError(
            f"field selector {text!r}: {match[0]!r} is no escape; write '\\\\' for a backslash"
        )

    return re.sub(r"\\.|\\\Z|=", literal, value, flags=re.DOTALL)

"""Formats of strings in custom resources, as kube-apiserver checks them.

A name is compared without its dashes, so `datetime` is `date-time`. A format that is not here is
not checked; creating a definition with one gives a warning.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from datetime import date
from typing import Any, Final

Check = Callable[[str], bool]

PREFIX: Final = "k8s:"
"""Marks a format in a compiled schema, so that the validator's own formats never apply."""

# Formats of numbers, and one that says nothing about the value.
_NUMERIC: Final = frozenset({"int32", "int64", "float", "double"})


def _pattern(text: str, flags: int = 0) -> Check:
    compiled = re.compile(text, flags | re.ASCII)
    return lambda value: compiled.fullmatch(value) is not None


_CLOCK = re.compile(
    r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(.\d+)?(z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_GO_DURATION = (
    r"[+-]?(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)((\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h))*"
)
_WORDS = (
    r"(ns|nanos?|nanoseconds?|us|micros?|microseconds?|ms|millis?|milliseconds?|s|secs?|seconds?"
    r"|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|wks?|weeks?)"
)
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_ADDRESS = re.compile(r"[^\s<>@]+@[^\s<>@]+")
_NAMED_ADDRESS = re.compile(r"[^<>]*<([^<>]+)>")
_OCTETS = re.compile(r"\d{1,3}(\.\d{1,3}){3}", re.ASCII)
_CARD = re.compile(r"[0-9]{13,19}", re.ASCII)


def _is_date(value: str) -> bool:
    if _DATE.fullmatch(value) is None:
        return False
    try:
        date.fromisoformat(value)
    except ValueError:
        return False
    return True


def _is_date_time(value: str) -> bool:
    day, letter, time = value[:10], value[10:11], value[11:]
    return letter in ("T", "t") and _is_date(day) and _CLOCK.fullmatch(time) is not None


def _is_ipv4(value: str) -> bool:
    return _OCTETS.fullmatch(value) is not None and all(int(n) < 256 for n in value.split("."))


def _is_ipv6(value: str) -> bool:
    if ":" not in value or "%" in value:
        return False
    try:
        ipaddress.IPv6Address(value)
    except ValueError:
        return False
    return True


def _is_cidr(value: str) -> bool:
    address, slash, bits = value.partition("/")
    if not slash or not (bits.isascii() and bits.isdigit()):
        return False
    return (_is_ipv4(address) and int(bits) <= 32) or (_is_ipv6(address) and int(bits) <= 128)


def _is_email(value: str) -> bool:
    named = _NAMED_ADDRESS.fullmatch(value.strip())
    return _ADDRESS.fullmatch(named[1] if named else value.strip()) is not None


def _is_uri(value: str) -> bool:
    if any(letter <= " " or letter == "\x7f" for letter in value):
        return False
    if re.search(r"%(?![0-9A-Fa-f]{2})", value):
        return False
    return value.startswith("/") or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", value) is not None


def _is_isbn10(value: str) -> bool:
    digits = re.sub(r"[\s-]", "", value)
    if re.fullmatch(r"\d{9}[\dX]", digits, re.ASCII) is None:
        return False
    last = 10 if digits[9] == "X" else int(digits[9])
    return (sum((i + 1) * int(digits[i]) for i in range(9)) + 10 * last) % 11 == 0


def _is_isbn13(value: str) -> bool:
    digits = re.sub(r"[\s-]", "", value)
    if re.fullmatch(r"\d{13}", digits, re.ASCII) is None:
        return False
    return sum(int(d) * (3 if i % 2 else 1) for i, d in enumerate(digits)) % 10 == 0


def _is_card(value: str) -> bool:
    digits = re.sub(r"[^0-9]", "", value)
    if _CARD.fullmatch(digits) is None:
        return False
    doubled = (int(d) * (2 if i % 2 else 1) for i, d in enumerate(reversed(digits)))
    return sum(n - 9 if n > 9 else n for n in doubled) % 10 == 0


_HEX = r"[0-9a-f]"
_BYTE = r"(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"

_CHECKS: Final[dict[str, Check]] = {
    "bsonobjectid": _pattern(_HEX + "{24}", re.IGNORECASE),
    "byte": _pattern(
        r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"
    ),
    "cidr": _is_cidr,
    "creditcard": _is_card,
    "date": _is_date,
    "datetime": _is_date_time,
    "duration": _pattern(rf"{_GO_DURATION}|(\d+(\.\d+)?\s*{_WORDS}\s*)+"),
    "email": _is_email,
    "hexcolor": _pattern(rf"#?({_HEX}{{3}}|{_HEX}{{6}})", re.IGNORECASE),
    # A name of one label may have a dash only after its first letter, as upstream.
    "hostname": _pattern(
        r"[a-z0-9](-?[a-z0-9]{0,62})?|([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}",
        re.IGNORECASE,
    ),
    "ipv4": _is_ipv4,
    "ipv6": _is_ipv6,
    "isbn": lambda value: _is_isbn10(value) or _is_isbn13(value),
    "isbn10": _is_isbn10,
    "isbn13": _is_isbn13,
    "k8slongname": _pattern(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*"),
    "k8sshortname": _pattern(rf"(?=.{{1,63}}\Z){_LABEL}"),
    "mac": _pattern(
        rf"{_HEX}{{2}}(([:-]){_HEX}{{2}})((\2{_HEX}{{2}}){{4}}|(\2{_HEX}{{2}}){{6}}|(\2{_HEX}{{2}}){{18}})"
        rf"|{_HEX}{{4}}(\.{_HEX}{{4}}){{2,3}}",
        re.IGNORECASE,
    ),
    "password": lambda value: True,
    "rgbcolor": _pattern(rf"rgb\(\s*{_BYTE}\s*,\s*{_BYTE}\s*,\s*{_BYTE}\s*\)"),
    "ssn": _pattern(r"\d{3}[- ]?\d{2}[- ]?\d{4}"),
    "uri": _is_uri,
    "uuid": _pattern(rf"{_HEX}{{8}}(-?{_HEX}{{4}}){{3}}-?{_HEX}{{12}}", re.IGNORECASE),
    "uuid3": _pattern(
        rf"{_HEX}{{8}}-?{_HEX}{{4}}-?3{_HEX}{{3}}-?{_HEX}{{4}}-?{_HEX}{{12}}", re.IGNORECASE
    ),
    "uuid4": _pattern(
        rf"{_HEX}{{8}}-?{_HEX}{{4}}-?4{_HEX}{{3}}-?[89ab]{_HEX}{{3}}-?{_HEX}{{12}}", re.IGNORECASE
    ),
    "uuid5": _pattern(
        rf"{_HEX}{{8}}-?{_HEX}{{4}}-?5{_HEX}{{3}}-?[89ab]{_HEX}{{3}}-?{_HEX}{{12}}", re.IGNORECASE
    ),
}

CHECKS: Final[dict[str, Check]] = {PREFIX + name: check for name, check in _CHECKS.items()}
"""For the validator, by marked name."""


def marked(name: Any) -> str | None:
    """Return the name of a format in a compiled schema; None if it is not checked."""
    key = str(name).replace("-", "")
    return PREFIX + key if key in _CHECKS else None


def unrecognized(schema: Any) -> Iterator[str]:
    """Yield the formats of a structural schema that nothing checks."""
    if isinstance(schema, dict):
        name = schema.get("format")
        if isinstance(name, str) and name and name not in _NUMERIC and marked(name) is None:
            yield name
        for key in ("properties", "patternProperties", "definitions"):
            for inner in (schema.get(key) or {}).values():
                yield from unrecognized(inner)
        for key in ("items", "additionalProperties", "not"):
            yield from unrecognized(schema.get(key))
        for key in ("allOf", "anyOf", "oneOf"):
            for inner in schema.get(key) or ():
                yield from unrecognized(inner)

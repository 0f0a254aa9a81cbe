"""Kubernetes quantities ("500m", "2Gi", "1e3") as exact integers, and their canonical form.

A `Quantity` counts nano-units in one Python int, so that sums of thousands of requests are exact.

Note: equality, order and hash use the amount only; the *format* (binary, decimal, exponent) decides
how the amount is written. `1Gi == 1073741824`, yet they print differently.

Behaviour follows `resource.Quantity` of k8s.io/apimachinery, with four deliberate differences:

- text without any digit ("Gi", "-", ".") is rejected; Kubernetes reads it as zero;
- decimal amounts of 1000E and more keep the suffix E; Kubernetes drops it and prints a tiny number;
- `value()` and `milli_value()` of a negative fraction round away from zero, as documented there;
  Kubernetes does so for short texts and towards zero for long ones;
- exponents beyond ±200 and texts beyond 256 characters are rejected, so that a request cannot make
  the server compute with integers of a million digits.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Final, Literal, NoReturn, TypeAlias

from hekla.units.errors import QuantityError

__all__ = ["Format", "Quantity", "QuantityError", "parse_quantity"]

Format: TypeAlias = Literal["BinarySI", "DecimalSI", "DecimalExponent"]

NANOS: Final = 10**9
MAX_INT64: Final = 2**63 - 1
MAX_EXPONENT: Final = 200
MAX_TEXT: Final = 256

# A parse costs about 2 us, a cached lookup 0.15 us; a large cluster has few distinct amounts.
CACHED_TEXTS: Final = 8192

_NUMBER = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)", re.ASCII)
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)", re.ASCII)

_DECIMAL_SUFFIXES: Final[dict[str, int]] = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_BINARY_SUFFIXES: Final[dict[str, int]] = {
    "Ki": 10,
    "Mi": 20,
    "Gi": 30,
    "Ti": 40,
    "Pi": 50,
    "Ei": 60,
}
_DECIMAL_NAMES: Final = {exponent: suffix for suffix, exponent in _DECIMAL_SUFFIXES.items()}
_BINARY_NAMES: Final = ("", *_BINARY_SUFFIXES)


class Quantity:
    """An exact, immutable amount of a resource."""

    __slots__ = ("_format", "_nanos", "_text")

    _nanos: int
    _format: Format
    _text: str | None

    def __init__(self, nanos: int = 0, format: Format = "DecimalSI") -> None:
        self._nanos = nanos
        self._format = format
        self._text = None

    @staticmethod
    def parse(text: str | int | float) -> Quantity:
        """Parse a quantity as in JSON: a string or a number."""
        try:
            return _parse_cached(text)
        except TypeError:  # unhashable: a JSON list or object
            _reject(text, "must be a string or a number")

    @staticmethod
    def from_milli(n: int) -> Quantity:
        """Return `n` thousandths, the unit of CPU: `from_milli(1500)` is "1500m"."""
        return Quantity(n * 1_000_000)

    @staticmethod
    def from_int(n: int, binary: bool = False) -> Quantity:
        """Return `n` whole units; `binary` writes them as Ki, Mi, Gi where exact."""
        return Quantity(n * NANOS, "BinarySI" if binary else "DecimalSI")

    @property
    def nanos(self) -> int:
        """The exact amount in billionths of a unit."""
        return self._nanos

    @property
    def format(self) -> Format:
        """The family of suffixes that `str()` uses."""
        return self._format

    @property
    def is_zero(self) -> bool:
        return self._nanos == 0

    def value(self) -> int:
        """Return whole units, with fractions rounded away from zero."""
        return _divide_up(self._nanos, NANOS)

    def milli_value(self) -> int:
        """Return thousandths, with finer fractions rounded away from zero."""
        return _divide_up(self._nanos, 1_000_000)

    def __float__(self) -> float:
        return self._nanos / NANOS

    def __bool__(self) -> bool:
        return self._nanos != 0

    def __add__(self, other: Quantity) -> Quantity:
        if not isinstance(other, Quantity):
            return NotImplemented
        return Quantity(self._nanos + other._nanos, (self if self._nanos else other)._format)

    def __sub__(self, other: Quantity) -> Quantity:
        if not isinstance(other, Quantity):
            return NotImplemented
        return Quantity(self._nanos - other._nanos, (self if self._nanos else other)._format)

    def __mul__(self, times: int) -> Quantity:
        if not isinstance(times, int):
            return NotImplemented
        return Quantity(self._nanos * times, self._format)

    __rmul__ = __mul__

    def __neg__(self) -> Quantity:
        return Quantity(-self._nanos, self._format)

    def __abs__(self) -> Quantity:
        return Quantity(abs(self._nanos), self._format)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Quantity):
            return NotImplemented
        return self._nanos == other._nanos

    def __lt__(self, other: Quantity) -> bool:
        if not isinstance(other, Quantity):
            return NotImplemented
        return self._nanos < other._nanos

    def __le__(self, other: Quantity) -> bool:
        if not isinstance(other, Quantity):
            return NotImplemented
        return self._nanos <= other._nanos

    def __gt__(self, other: Quantity) -> bool:
        if not isinstance(other, Quantity):
            return NotImplemented
        return self._nanos > other._nanos

    def __ge__(self, other: Quantity) -> bool:
        if not isinstance(other, Quantity):
            return NotImplemented
        return self._nanos >= other._nanos

    def __hash__(self) -> int:
        return hash(self._nanos)

    def __str__(self) -> str:
        if self._text is None:
            self._text = _canonical(self._nanos, self._format)
        return self._text

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"


def parse_quantity(text: str | int | float) -> Quantity:
    """Same as `Quantity.parse`."""
    return Quantity.parse(text)


def _divide_up(nanos: int, unit: int) -> int:
    """Return the quotient rounded away from zero."""
    return -(-nanos // unit) if nanos >= 0 else nanos // unit


def _reject(text: object, reason: str) -> NoReturn:
    shown = repr(text)
    if len(shown) > 80:
        shown = shown[:77] + "..."
    raise QuantityError(
        f"quantity {shown}: {reason}; write a number with an optional suffix, "
        'such as "500m", "2", "1.5Gi" or "1e3"'
    )


# typed: 1, 1.0 and True are equal as keys, but only two of them are quantities.
@lru_cache(maxsize=CACHED_TEXTS, typed=True)
def _parse_cached(text: str | int | float) -> Quantity:
    if isinstance(text, str):
        return _parse(text)
    if isinstance(text, bool):
        _reject(text, "must be a string or a number")
    if isinstance(text, int):
        if abs(text) >= 10**MAX_EXPONENT:
            _reject("a huge integer", "is too large")
        return _parse(str(text))
    if isinstance(text, float):
        if not math.isfinite(text):
            _reject(text, "must be finite")
        return _parse(repr(text))
    _reject(text, "must be a string or a number")


def _parse(text: str) -> Quantity:
    if len(text) > MAX_TEXT:
        _reject(text, f"is longer than {MAX_TEXT} characters")
    match = _NUMBER.fullmatch(text)
    if match is None:
        _reject(text, "does not look like a number with a suffix")
    sign, whole, fraction, suffix = match.groups(default="")
    if not whole and not fraction:
        _reject(text, "has no digits")
    digits = (whole.lstrip("0") or "0") + fraction
    if suffix in _BINARY_SUFFIXES:
        nanos, format = _binary(int(digits), len(fraction), _BINARY_SUFFIXES[suffix])
        keep = not fraction and _keeps_binary_text(digits, suffix)
    else:
        exponent, format = _decimal_exponent(text, suffix)
        nanos = _scale_up(int(digits), exponent - len(fraction))
        keep = _keeps_decimal_text(digits, exponent - len(fraction))
    quantity = Quantity(-nanos if sign == "-" else nanos, format)
    if keep:
        quantity._text = text
    return quantity


def _decimal_exponent(text: str, suffix: str) -> tuple[int, Format]:
    known = _DECIMAL_SUFFIXES.get(suffix)
    if known is not None:
        return known, "DecimalSI"
    match = _EXPONENT.fullmatch(suffix)
    if match is None:
        _reject(text, f"has the unknown suffix {suffix!r}")
    exponent = int(match[1])
    if abs(exponent) > MAX_EXPONENT:
        _reject(text, f"has an exponent beyond ±{MAX_EXPONENT}")
    return exponent, "DecimalExponent"


def _scale_up(amount: int, exponent: int) -> int:
    """Return amount * 10**exponent in nano-units, rounded up."""
    exponent += 9
    power: int = 10 ** abs(exponent)
    return amount * power if exponent >= 0 else -(-amount // power)


def _binary(amount: int, decimals: int, shift: int) -> tuple[int, Format]:
    nanos = min(_scale_up(amount << shift, -decimals), MAX_INT64 * NANOS)
    # As in Kubernetes: an amount below one unit has no binary form and becomes decimal.
    return nanos, "DecimalSI" if 0 < nanos < NANOS else "BinarySI"


def _keeps_decimal_text(digits: str, scale: int) -> bool:
    """Return whether the text is kept as written. [quirk]

    Kubernetes takes the input for canonical if its scale is a multiple of three, so "1.500", "+2"
    and "1E3" come back unchanged where computing would give "1500m", "2" and "1e3". Clients compare
    what they sent with what they read, so we keep it.
    """
    return (
        len(digits) <= 18
        and scale >= -9
        and scale % 3 == 0
        and digits[0] != "0"
        and not digits.endswith("000")
    )


def _keeps_binary_text(digits: str, suffix: str) -> bool:
    """As `_keeps_decimal_text`, for binary suffixes: only a leading "+" and zeros differ."""
    shift = _BINARY_SUFFIXES[suffix]
    return len(digits) + shift * 3 // 10 + 1 <= 15 and int(digits) % 8 != 0


def _canonical(nanos: int, format: Format) -> str:
    if nanos == 0:
        return "0"
    if format == "BinarySI":
        # Below 1Ki, or with a fraction, binary would round; Kubernetes writes decimal then.
        if nanos % NANOS == 0 and abs(nanos) >= 1024 * NANOS:
            return _canonical_binary(nanos // NANOS)
        format = "DecimalSI"
    amount, exponent = nanos, -9
    while amount % 1000 == 0 and (exponent < 18 or format == "DecimalExponent"):
        amount //= 1000
        exponent += 3
    if format == "DecimalSI":
        return f"{amount}{_DECIMAL_NAMES[exponent]}"
    return f"{amount}e{exponent}" if exponent else str(amount)


def _canonical_binary(amount: int) -> str:
    times = 0
    # Ei is the last suffix: an amount of 1024Ei stays "1024Ei".
    while amount % 1024 == 0 and times < 6:
        amount //= 1024
        times += 1
    return f"{amount}{_BINARY_NAMES[times]}"

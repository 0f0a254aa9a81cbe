"""Resource amounts as people type them: refused with the next step, before a server sees them."""

from __future__ import annotations

import re
from typing import Final

from hekla.units.quantity import Quantity, QuantityError, parse_quantity

MIN_MEMORY: Final = parse_quantity("1Mi")
_UNIT: Final = re.compile(r"([0-9.]+)\s*([KMGTP])i?b?(yte|ytes)?", re.IGNORECASE)
_NUMBER: Final = re.compile(r"[0-9.]+")


def checked(resource: str, amount: str | int | float) -> str:
    """Return an amount as text, or raise a ValueError that says what to write instead."""
    text = str(amount)
    try:
        quantity = parse_quantity(text)
    except QuantityError as error:
        unit = _UNIT.fullmatch(text.strip())
        hint = f"; did you mean {unit.group(1)}{unit.group(2).upper()}i?" if unit else ""
        raise ValueError(f"{resource}: {error}{hint}") from error
    if quantity < Quantity():
        raise ValueError(f"{resource}: {text} is negative")
    if resource == "memory" and not quantity.is_zero and quantity < MIN_MEMORY:
        number = _NUMBER.match(text)
        hint = f"; did you mean {number.group()}Mi?" if number else ""
        raise ValueError(f"memory: {text} is {_bytes(quantity)}{hint}")
    return text


def _bytes(quantity: Quantity) -> str:
    """Return `64 bytes`."""
    return f"{quantity.nanos / 10**9:g} bytes"

"""FieldError: a validation error in Kubernetes' format, and its constructors.

Programs read `type` and `field`; `kubectl` shows the body. The first words of a body ("Required
value", "Unsupported value") are fixed by Kubernetes; the rest names accepted values.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypedDict

REQUIRED: Final = "FieldValueRequired"
INVALID: Final = "FieldValueInvalid"
DUPLICATE: Final = "FieldValueDuplicate"
FORBIDDEN: Final = "FieldValueForbidden"
NOT_SUPPORTED: Final = "FieldValueNotSupported"
NOT_FOUND: Final = "FieldValueNotFound"
TOO_LONG: Final = "FieldValueTooLong"
TOO_MANY: Final = "FieldValueTooMany"
TYPE_INVALID: Final = "FieldValueTypeInvalid"

_OPENING: Final = {
    REQUIRED: "Required value",
    INVALID: "Invalid value",
    DUPLICATE: "Duplicate value",
    FORBIDDEN: "Forbidden",
    NOT_SUPPORTED: "Unsupported value",
    NOT_FOUND: "Not found",
    TOO_LONG: "Too long",
    TOO_MANY: "Too many",
    TYPE_INVALID: "Invalid value",
}
_WITHOUT_VALUE: Final = {REQUIRED, FORBIDDEN, TOO_LONG}
_LONGEST_SHOWN: Final = 256  # bounds error messages


@dataclass(frozen=True, slots=True)
class FieldError:
    type: str
    field: str
    detail: str = ""
    bad_value: Any = None

    @property
    def body(self) -> str:
        """The error without the field: the message of a Status cause."""
        text = _OPENING.get(self.type, self.type)
        if self.type not in _WITHOUT_VALUE:
            text += f": {_shown(self.bad_value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.field}: {self.body}"


FieldErrors: TypeAlias = Iterator[FieldError]


class Cause(TypedDict):
    """An entry of a Status' `details.causes`."""

    reason: str
    message: str
    field: str


def causes(errors: Iterable[FieldError]) -> list[Cause]:
    """Return the `details.causes` of a Status."""
    return [{"reason": e.type, "message": e.body, "field": e.field} for e in errors]


def summary(kind: str, name: str, errors: Iterable[FieldError]) -> str:
    """Return the message of the Status: `Pod "a" is invalid: ...`."""
    texts = list(dict.fromkeys(str(e) for e in errors))
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return f'{kind} "{name}" is invalid: {text}'


def required(field: str, detail: str = "") -> FieldError:
    return FieldError(REQUIRED, field, detail)


def invalid(field: str, value: Any, detail: str) -> FieldError:
    return FieldError(INVALID, field, detail, value)


def duplicate(field: str, value: Any, detail: str = "") -> FieldError:
    return FieldError(DUPLICATE, field, detail, value)


def forbidden(field: str, detail: str) -> FieldError:
    return FieldError(FORBIDDEN, field, detail)


def not_found(field: str, value: Any, detail: str = "") -> FieldError:
    return FieldError(NOT_FOUND, field, detail, value)


def too_many(field: str, number: int, most: int) -> FieldError:
    return FieldError(TOO_MANY, field, f"must have at most {most}; split the object", number)


def too_long(field: str, limit: int) -> FieldError:
    return FieldError(TOO_LONG, field, f"may not be more than {limit} bytes")


def one_of(field: str, value: Any, supported: Iterable[str], prefix: str = "") -> FieldErrors:
    """Yield an error with the accepted values, unless the value is one of them."""
    if value not in supported:
        listed = ", ".join(f'"{each}"' for each in sorted(supported))
        yield FieldError(NOT_SUPPORTED, field, f"{prefix}supported values: {listed}", value)


def at_least(field: str, value: Any, least: int) -> FieldErrors:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        yield invalid(field, value, f"must be a whole number of at least {least}")


def between(field: str, value: Any, least: int, most: int) -> FieldErrors:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        yield invalid(field, value, f"must be between {least} and {most}, inclusive")


def unchanged(field: str, new: Any, old: Any) -> FieldErrors:
    """Yield an error if a field has changed; absent, null and empty are equal, as in Go."""
    if new != old and (new or old):
        yield invalid(field, new, "field is immutable")


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)
    elif isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
    elif value is None:
        text = "null"
    elif isinstance(value, bool):
        text = str(value).lower()
    else:
        text = str(value)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."

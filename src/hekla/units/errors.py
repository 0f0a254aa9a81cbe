"""Errors of values, patches and applied configurations.

    ValueError
    ├── QuantityError         not a Kubernetes quantity
    ├── DurationError         not a Go duration
    ├── TimestampError        not an RFC 3339 time
    ├── SelectorError         not a label or field selector
    ├── PatchError            the patch is malformed, or does not fit the document
    │   └── PatchTestFailed   a `test` operation of a JSON patch failed
    ├── FieldSetError         not a `fieldsV1` set
    └── ApplyError            the applied configuration cannot be merged
        └── ApplyConflict     other managers own fields that it would change

All are ValueErrors because all describe invalid input. Each module re-exports the errors it raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = [
    "ApplyConflict",
    "ApplyError",
    "Conflict",
    "DurationError",
    "FieldSetError",
    "PatchError",
    "PatchTestFailed",
    "QuantityError",
    "SelectorError",
    "TimestampError",
]


class QuantityError(ValueError):
    """The text is not a Kubernetes quantity."""


class DurationError(ValueError):
    """The text is not a Go duration."""


class TimestampError(ValueError):
    """The text is not an RFC 3339 time, or the time cannot be written as one."""


class SelectorError(ValueError):
    """The selector cannot be parsed, or names an invalid label."""


class PatchError(ValueError):
    """The patch is malformed, or does not fit the document."""


class PatchTestFailed(PatchError):
    """A `test` operation of a JSON patch found another value than expected."""


class FieldSetError(ValueError):
    """The object is not a field set in the `fieldsV1` format."""


class ApplyError(ValueError):
    """The applied configuration cannot be merged."""


class Conflict(NamedTuple):
    """A field that another manager owns with another value."""

    manager: str
    subresource: str
    api_version: str
    field: str

    def __str__(self) -> str:
        through = f" (subresource {self.subresource!r})" if self.subresource else ""
        return f"{self.field} is owned by {self.manager!r}{through} using {self.api_version}"


class ApplyConflict(ApplyError):
    """Other managers own fields that the applied configuration would change."""

    def __init__(self, conflicts: Sequence[Conflict]) -> None:
        self.conflicts: list[Conflict] = list(conflicts)
        count = len(self.conflicts)
        super().__init__(
            f"apply: {count} conflict{'s' if count != 1 else ''}: "
            + "; ".join(map(str, self.conflicts))
            + "; drop the fields, take over their current values, or force to own them"
        )

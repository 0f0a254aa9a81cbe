"""What can be wrong with a value, a patch or an applied configuration.

    ValueError
    ├── QuantityError         not a Kubernetes quantity
    ├── DurationError         not a Go duration
    ├── TimestampError        not an RFC 3339 time
    ├── SelectorError         not a label or field selector
    ├── PatchError            the patch is malformed, or does not fit the document
    │   └── PatchTestFailed   a JSON patch's own `test` said no: the document is not as expected
    ├── FieldSetError         not a `fieldsV1` set
    └── ApplyError            the applied configuration cannot be merged as it stands
        └── ApplyConflict     other managers own fields that it would change

All are ValueErrors because all are about what somebody sent, never about what we did. Each module
re-exports the ones it raises.
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
    """The text is not an RFC 3339 time, or the moment cannot be written as one."""


class SelectorError(ValueError):
    """The selector cannot be understood, or names an impossible label."""


class PatchError(ValueError):
    """The patch is malformed, or does not fit the document."""


class PatchTestFailed(PatchError):
    """A `test` operation of a JSON patch found another value than the sender expected."""


class FieldSetError(ValueError):
    """The object is not a field set in the `fieldsV1` format."""


class ApplyError(ValueError):
    """The applied configuration cannot be merged as it stands."""


class Conflict(NamedTuple):
    """One field that somebody else owns with another value."""

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

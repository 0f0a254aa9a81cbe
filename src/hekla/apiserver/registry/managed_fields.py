"""`metadata.managedFields`: track the field manager of each field.

An apply computes its entry in `hekla.units.apply`; other writes are tracked here by what they
changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hekla.api.empty_objects import EMPTY_OBJECTS
from hekla.apiserver.schema.kinds import Served
from hekla.units.clock import Clock
from hekla.units.objects import Object
from hekla.units.ownership import managed_fields_after_update
from hekla.units.timestamps import format_time

if TYPE_CHECKING:
    from hekla.apiserver.registry.options import Options

STATUS_LIKE = ("status", "approval")
"""Subresources that write only the status."""


class ManagedFields:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def track(self, served: Served, old: Object | None, new: Object, options: Options) -> None:
        """Record in `new` the fields that this write set."""
        if options.is_apply:
            return
        kind = served.kind
        entries = managed_fields_after_update(
            old,
            new,
            manager=options.field_manager,
            api_version=kind.api_version,
            now=format_time(self._clock.now()),
            shape=served.shape,
            subresource=options.subresource,
            ignored=ignored_fields(served, options.subresource),
            blank=None if served.custom else EMPTY_OBJECTS.get((kind.api_version, kind.kind)),
        )
        if entries:
            new["metadata"]["managedFields"] = entries
        else:
            new["metadata"].pop("managedFields", None)


def ignored_fields(served: Served, subresource: str) -> tuple[str, ...]:
    """Return top-level fields that a subresource does not write."""
    if subresource in STATUS_LIKE:
        return ("spec",)
    return ("status",) if served.has_status and not subresource else ()

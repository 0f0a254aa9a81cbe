"""Who set which field: `metadata.managedFields` kept on every write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hekla.apiserver.registry import Served
from hekla.units.clock import Clock
from hekla.units.timestamps import format_time

if TYPE_CHECKING:
    from hekla.apiserver.resources import Options

Object = dict[str, Any]


class Ownership:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def track(self, served: Served, old: Object | None, new: Object, options: Options) -> None:
        """Record in `new` what this write set. An apply records for itself."""
        format_time(self._clock.now())

"""The input of a decision about a Kubernetes Job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hekla.units.objects import Object


@dataclass(frozen=True)
class JobView:
    """A Job and its pods at one moment."""

    job: Object
    now: float
    pods: Sequence[Object] = ()
    orphans: Sequence[Object] = ()

    @property
    def spec(self) -> Object:
        found: Object = self.job["spec"]
        return found

    @property
    def is_indexed(self) -> bool:
        return self.spec.get("completionMode") == "Indexed"

    @property
    def is_suspended(self) -> bool:
        return bool(self.spec.get("suspend"))

    def number(self, name: str, default: int = 0) -> int:
        value = self.spec.get(name)
        return default if value is None else int(value)

"""What an admission controller is: the attempt it sees, and what it may do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hekla.apiserver import errors
from hekla.apiserver.history import Entry
from hekla.apiserver.registry import Served
from hekla.units.objects import Object

if TYPE_CHECKING:
    from hekla.apiserver.resources import Options, Resources


@dataclass(slots=True)
class Attempt:
    """A write on its way in."""

    verb: str  # create, update or delete
    served: Served
    namespace: str
    obj: Object
    old: Object | None
    options: Options
    is_name_generated: bool = False

    def creates(self, storage: str) -> bool:
        return self.verb == "create" and self.served.storage == storage

    def forbid(self, why: str) -> errors.StatusError:
        kind = self.served.kind
        name = self.obj["metadata"].get("name", "")
        return errors.forbidden(kind.group, kind.plural, name, why)


@dataclass(slots=True)
class Also:
    """Another object to be changed in the same transaction (a quota's usage, say)."""

    storage: str
    entry: Entry
    obj: Object


class Controller:
    """An admission controller; override what it does."""

    def __init__(self, resources: Resources) -> None:
        self.resources = resources
        self.store = resources.store

    def mutate(self, attempt: Attempt) -> None:
        """Change `attempt.obj` before it is validated."""

    def validate(self, attempt: Attempt) -> list[Also]:
        """Refuse by raising; return what must change along with it."""
        return []

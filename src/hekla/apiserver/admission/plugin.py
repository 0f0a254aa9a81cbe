"""The interface of admission plugins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hekla.apiserver import errors
from hekla.apiserver.schema.kinds import Served
from hekla.apiserver.storage.watch_cache import Entry
from hekla.units.objects import Object

if TYPE_CHECKING:
    from hekla.apiserver.registry.options import Options
    from hekla.apiserver.registry.resources import Resources


@dataclass(slots=True)
class Attributes:
    """The attributes of a write under admission."""

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
class RelatedWrite:
    """Another object to write in the same transaction, such as a quota's usage."""

    storage: str
    entry: Entry
    obj: Object


class AdmissionPlugin:
    """Base class of admission plugins."""

    def __init__(self, resources: Resources) -> None:
        self.resources = resources
        self.store = resources.store

    def mutate(self, attributes: Attributes) -> None:
        """Change `attributes.obj` before it is validated."""

    def validate(self, attributes: Attributes) -> list[RelatedWrite]:
        """Raise to refuse the write; return objects to write with it."""
        return []

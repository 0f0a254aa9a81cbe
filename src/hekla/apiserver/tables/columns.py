"""Columns, and the printers that fill a row.

A `Printer` is looked up by the kind's storage name in `hekla.apiserver.tables.PRINTERS`. Its
`cells` function is pure and returns a value for each column, wide ones included: kubectl hides
columns of priority 1 unless `-o wide` is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hekla.units.objects import Object

Cells = Callable[[Object, float], list[Any]]
"""Object and current Unix time to the cells of its row."""

WIDE = 1


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    description: str = ""
    type: str = "string"
    format: str = ""
    priority: int = 0

    def definition(self) -> Object:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


def _no_conditions(_: Object) -> list[Object]:
    return []


@dataclass(frozen=True, slots=True)
class Printer:
    """The columns of a kind and the function that fills them."""

    columns: tuple[Column, ...]
    cells: Cells
    conditions: Callable[[Object], list[Object]] = _no_conditions
    """Row conditions: `Completed` means that the object will not change any more."""


NAME = Column("Name", "The object's name, unique among its kind in its namespace.", format="name")
AGE = Column("Age", "Time since the object was created.")
CREATED_AT = Column("Created At", "When the object was created.", type="date")
CONTAINERS = Column("Containers", "Names of the containers in the template.", priority=WIDE)
IMAGES = Column("Images", "Images of the containers in the template.", priority=WIDE)
SELECTOR = Column("Selector", "Labels of the selected pods.", priority=WIDE)


def wide(name: str, description: str, type: str = "string") -> Column:
    return Column(name, description, type, priority=WIDE)


def number(name: str, description: str) -> Column:
    return Column(name, description, "integer")


def flag(name: str, description: str) -> Column:
    return Column(name, description, "boolean")


def printer(columns: Sequence[Column], cells: Cells) -> Printer:
    return Printer(tuple(columns), cells)

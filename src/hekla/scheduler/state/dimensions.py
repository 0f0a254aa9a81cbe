"""Resource names as row numbers, and amounts as floats in one fixed unit per resource.

Note: CPU and countable resources (GPUs) are in thousandths, memory and other byte counts in bytes.
`pods` has no row, because Volcano counts pods in a filter and leaves them out of every comparison.
All amounts are whole numbers, so sums in float64 are exact and subtraction restores every bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from hekla.api import wellknown
from hekla.units.quantity import QuantityError, parse_quantity

FloatArray: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
IntArray: TypeAlias = npt.NDArray[np.int64]

CPU: Final = 0
MEMORY: Final = 1
PODS: Final = "pods"

EPSILON: Final = 0.1
"""Volcano's tolerance in every dimension: a request fits if it exceeds the idle amount by less."""

MAX_AMOUNT: Final = float(2**50)
"""Larger amounts are cut to this. No node has a PiB of memory, and below it sums stay exact."""

_BYTES: Final = ("memory", "ephemeral-storage", "storage")
_FIRST_CAPACITY: Final = 16


_BY_CARD: Final = frozenset(
    [wellknown.VGPU_MEMORY, wellknown.VGPU_MEMORY_PERCENTAGE, wellknown.VGPU_CORES]
)


def is_counted(name: str) -> bool:
    """Tell whether a name has a row: not `pods`, `count/jobs`, `requests.cpu` and similar.

    PodGroups have such names in minResources, for quotas. A request per device is no amount of a
    node; `deviceshare` counts it device by device.
    """
    if name.startswith(("count/", "requests.", "limits.")) or name in _BY_CARD:
        return False
    if name.startswith("huawei.com/Ascend") and name.endswith("-memory"):
        return False
    return (
        name in ("cpu", "memory", "ephemeral-storage")
        or "/" in name
        or name.startswith(("hugepages-", "attachable-volumes-"))
    )


def is_bytes(name: str) -> bool:
    """Tell whether a resource is counted in bytes rather than in thousandths."""
    return name in _BYTES or name.startswith("hugepages-")


def amount_of(name: str, text: str | int | float) -> float:
    """Return a quantity in the unit of its row; QuantityError if it is invalid."""
    quantity = parse_quantity(text)
    value = quantity.value() if is_bytes(name) or name == PODS else quantity.milli_value()
    return float(max(min(value, int(MAX_AMOUNT)), -int(MAX_AMOUNT)))


def show_amount(name: str, amount: float) -> str:
    """Format an amount as people write it: `2`, `500m`, `1.5Gi`."""
    if not is_bytes(name):
        return f"{amount / 1000:g}" if amount % 10 == 0 else f"{amount:g}m"
    for suffix, size in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if abs(amount) >= size:
            return f"{round(amount / size, 2):g}{suffix}"
    return f"{amount:g}"


class Dimensions:
    """The rows: cpu, memory, then every other resource in the order of its first use."""

    def __init__(self) -> None:
        self.names: list[str] = ["cpu", "memory"]
        self._rows: dict[str, int] = {"cpu": CPU, "memory": MEMORY}
        self.capacity = _FIRST_CAPACITY

    def __len__(self) -> int:
        return len(self.names)

    def row(self, name: str) -> int | None:
        """Return the row of a resource, or None if no object has it."""
        return self._rows.get(name)

    def intern(self, name: str) -> int:
        """Return the row of a resource, adding it if needed. Pad vectors if `capacity` grows."""
        row = self._rows.get(name)
        if row is None:
            row = self._rows[name] = len(self.names)
            self.names.append(name)
            while row >= self.capacity:
                self.capacity *= 2
        return row

    def zeros(self) -> FloatArray:
        return np.zeros(self.capacity)

    def vector(self, amounts: Mapping[str, str | int | float]) -> tuple[FloatArray, list[str]]:
        """Return amounts by name as a vector, and the problems with them.

        Names without a row are left out: `pods`, and names that only quotas use.
        """
        parsed: dict[int, float] = {}
        problems: list[str] = []
        for name, text in sorted(amounts.items()):
            if not is_counted(name):
                continue
            try:
                amount = amount_of(name, text)
            except QuantityError as error:
                problems.append(f"{name}: {error}")
                continue
            if amount < 0:
                problems.append(f"{name}: {text} is negative")
                amount = 0.0
            elif amount >= MAX_AMOUNT:
                problems.append(f"{name}: {text} is more than any machine has")
            parsed[self.intern(name)] = amount
        out = self.zeros()
        for row, amount in parsed.items():
            out[row] = amount
        return out, problems

    def show(self, vector: FloatArray) -> dict[str, str]:
        """Return the non-zero amounts of a vector, by name."""
        return {
            name: show_amount(name, float(vector[row]))
            for row, name in enumerate(self.names)
            if vector[row] != 0
        }


def padded(vector: FloatArray, capacity: int) -> FloatArray:
    """Return the vector at least `capacity` long; the same object if it is already."""
    if len(vector) >= capacity:
        return vector
    out = np.zeros(capacity)
    out[: len(vector)] = vector
    return out


def share(part: float, whole: float) -> float:
    """Return part / whole; 0/0 is 0, and anything else of 0 is 1."""
    if whole == 0:
        return 0.0 if part == 0 else 1.0
    return part / whole


def largest_share(part_r: FloatArray, whole_r: FloatArray, rows: Iterable[int]) -> float:
    """Return the dominant share over some rows."""
    largest = 0.0
    for row in rows:
        part, whole = part_r.item(row), whole_r.item(row)
        fraction = part / whole if whole else (1.0 if part else 0.0)
        if fraction > largest:
            largest = fraction
    return largest


def less_equal(left_r: FloatArray, right_r: FloatArray) -> bool:
    """Compare as Volcano's LessEqual with zero defaults: every row, with tolerance."""
    return bool(np.all(left_r < right_r + EPSILON))

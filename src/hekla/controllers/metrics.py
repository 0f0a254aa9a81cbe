"""What the controllers have done, as plain numbers."""

from __future__ import annotations

from collections import Counter

Label = tuple[tuple[str, str], ...]


class Metrics:
    """Counters by name and labels; whoever serves them reads `values`."""

    def __init__(self) -> None:
        self.values: Counter[tuple[str, Label]] = Counter()

    def count(self, name: str, by: int = 1, **labels: str) -> None:
        self.values[name, tuple(sorted(labels.items()))] += by

    def set(self, name: str, value: int, **labels: str) -> None:
        self.values[name, tuple(sorted(labels.items()))] = value

    def get(self, name: str, **labels: str) -> int:
        """One counter, or the sum over its labels when none are given."""
        if labels:
            return self.values[name, tuple(sorted(labels.items()))]
        return sum(value for (each, _), value in self.values.items() if each == name)

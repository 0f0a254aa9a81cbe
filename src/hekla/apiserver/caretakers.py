"""Background work that keeps the stored objects in order."""

from __future__ import annotations

from hekla.apiserver.resources import Resources


class Caretakers:
    def __init__(self, resources: Resources) -> None:
        self.resources = resources

    def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

"""The standard input of containers: named pipes that clients write to."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


class ContainerStdin:
    """The write ends of the input pipes of one pod's containers."""

    def __init__(self) -> None:
        self._descriptors: dict[str, int] = {}

    def open(self, container: str, path: Path) -> None:
        """Create a pipe, or open an existing one."""
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        # Open for reading too: a pipe without a reader cannot be opened for writing.
        self._descriptors[container] = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def get(self, container: str) -> int | None:
        """Return the descriptor to write a container's input to; None if it has no input."""
        return self._descriptors.get(container)

    def close(self, container: str) -> None:
        """End the input of a container."""
        if (descriptor := self._descriptors.pop(container, None)) is not None:
            os.close(descriptor)

    def close_all(self) -> None:
        """Close all pipes; containers that hold their pipe open see no end of input."""
        for container in list(self._descriptors):
            self.close(container)

"""The status of a task, and the groups of statuses that Volcano counts together."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Status(IntEnum):
    """The status of a task, as in Volcano. Allocated and Pipelined exist in a session only."""

    PENDING = 0
    ALLOCATED = 1
    PIPELINED = 2
    """Placed on resources that are being released."""
    BINDING = 3
    """The bind was sent, and the watch has not confirmed it."""
    BOUND = 4
    RUNNING = 5
    RELEASING = 6
    SUCCEEDED = 7
    FAILED = 8
    UNKNOWN = 9


PENDING: Final = Status.PENDING
ALLOCATED: Final = Status.ALLOCATED
PIPELINED: Final = Status.PIPELINED
BINDING: Final = Status.BINDING
BOUND: Final = Status.BOUND
RUNNING: Final = Status.RUNNING
RELEASING: Final = Status.RELEASING
SUCCEEDED: Final = Status.SUCCEEDED
FAILED: Final = Status.FAILED
UNKNOWN: Final = Status.UNKNOWN

ALLOCATED_CLASS: Final = frozenset({ALLOCATED, BINDING, BOUND, RUNNING})
READY_CLASS: Final = ALLOCATED_CLASS | {SUCCEEDED}
VALID_CLASS: Final = READY_CLASS | {PIPELINED, PENDING}
COMPLETED_CLASS: Final = frozenset({SUCCEEDED, FAILED})

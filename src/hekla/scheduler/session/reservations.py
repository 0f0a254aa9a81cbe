"""Capacity reserved in this cycle for a job that has been pending for long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hekla.scheduler.state.classes import TaskClass
from hekla.scheduler.state.model import Job

if TYPE_CHECKING:
    from hekla.scheduler.session.session import Session


@dataclass(frozen=True, slots=True)
class Reservation:
    """Capacity for a number of tasks of a class on one node, reserved for a job."""

    job: Job
    klass: TaskClass
    column: int
    count: int


class Reservations:
    """The reservations of a session. Other jobs see them as pipelined resources."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._all: list[Reservation] = []

    def __iter__(self) -> Iterator[Reservation]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def add(self, reservations: Sequence[Reservation]) -> None:
        """Reserve capacity until the cycle ends."""
        self._account(reservations, 1)
        self._all += reservations

    def release(self, job: Job) -> list[Reservation]:
        """Release what is reserved for a job, so that it can use it; give it to `add` if not."""
        released = [each for each in self._all if each.job is job]
        self._account(released, -1)
        self._all = [each for each in self._all if each.job is not job]
        return released

    def _account(self, reservations: Sequence[Reservation], sign: int) -> None:
        session = self._session
        for each in reservations:
            for row, amount in zip(each.klass.rows, each.klass.amounts, strict=True):
                session.columns.pipelined_rn[row, each.column] += sign * each.count * amount
            session.placer.changes.mark_reserved(np.asarray([each.column]))
            session.bump_version()

"""Requests of any shape: work grows with their size, not with its square."""

from __future__ import annotations

import pytest
from tools.fuzz import slow

SIZE = 1_000


@pytest.mark.parametrize("name", slow.CASES)
async def test_work_of_a_request_grows_with_its_size(name: str) -> None:
    async with slow.probe() as run:
        exponents = []
        for _ in range(3):  # another process may have taken the core: one quiet run is enough
            costs = await slow.growth(run, name, SIZE)
            exponents.append(costs[-1])
            if costs[-1] <= slow.EXPONENT:
                return
    raise AssertionError(f"{name}: work grows as n^{min(exponents):.2f}; costs {costs}")

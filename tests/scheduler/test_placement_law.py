"""Placing k equal tasks at once is exactly placing them one by one."""

from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.scheduler import placement
from hekla.scheduler.dimensions import FloatArray, IntArray


def tables(shape: str) -> st.SearchStrategy[list[list[int]]]:
    """Score ladders of a few nodes: small numbers, so that ties abound."""
    ladder = st.lists(st.integers(0, 6), min_size=1, max_size=9)
    if shape == "falling":
        ladder = ladder.map(lambda rungs: sorted(rungs, reverse=True))
    elif shape == "rising":
        ladder = ladder.map(sorted)
    return st.lists(ladder, min_size=1, max_size=12)


def both(ladders: list[list[int]], k: int) -> tuple[list[int], list[int]]:
    index = np.asarray([3 * i + 1 for i in range(len(ladders))], dtype=np.int64)
    copies = np.asarray([len(ladder) for ladder in ladders], dtype=np.int64)

    def score(nodes: IntArray, levels: IntArray) -> FloatArray:
        pairs = zip(nodes.tolist(), levels.tolist(), strict=True)
        return np.asarray([ladders[(n - 1) // 3][level] for n, level in pairs], dtype=np.float64)

    head = score(index, np.zeros(len(index), dtype=np.int64))
    quick = placement.place(score, index, copies, k, head)
    slow = placement.one_by_one(score, index, copies, k, head)
    habit = placement.Habit()
    for heaped in (0, 1):
        habit.heaped = heaped
        by_habit = placement.place(score, index, copies, k, head, habit)
        assert by_habit.tolist() == slow.tolist()
    return quick.tolist(), slow.tolist()


@settings(max_examples=400, deadline=None)
@given(tables("any"), st.integers(0, 60))
def test_any_scores(ladders: list[list[int]], k: int) -> None:
    quick, slow = both(ladders, k)
    assert slow == quick


@settings(max_examples=300, deadline=None)
@given(tables("falling"), st.integers(0, 60))
def test_scores_that_fall_as_a_node_fills(ladders: list[list[int]], k: int) -> None:
    quick, slow = both(ladders, k)
    assert slow == quick


@settings(max_examples=300, deadline=None)
@given(tables("rising"), st.integers(0, 60))
def test_scores_that_rise_as_a_node_fills(ladders: list[list[int]], k: int) -> None:
    quick, slow = both(ladders, k)
    assert slow == quick


@settings(max_examples=300, deadline=None)
@given(tables("any"), st.integers(0, 60))
def test_scores_that_are_told_a_few_at_a_time(ladders: list[list[int]], k: int) -> None:
    with mock.patch.object(placement, "_AT_ONCE", 2), mock.patch.object(placement, "_GROWTH", 1):
        quick, slow = both(ladders, k)
    assert slow == quick


def test_spreading_takes_nodes_in_turn_and_packing_fills_the_first() -> None:
    spread, _ = both([[5, 4, 3], [5, 4, 3], [5, 4, 3]], 5)
    packed, _ = both([[3, 4, 5], [3, 4, 5], [3, 4, 5]], 5)
    assert spread == [1, 4, 7, 1, 4]
    assert packed == [1, 1, 1, 4, 4]


def test_no_more_tasks_are_placed_than_there_is_room_for() -> None:
    quick, slow = both([[1], [2, 2]], 10)
    assert [4, 4, 1] == quick == slow

"""Placing k equal tasks at once equals placing them one by one."""

from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.scheduler import SequentialScore
from hekla.scheduler.placement import greedy, sequential
from hekla.scheduler.state.dimensions import FloatArray, IntArray
from hekla.scheduler.state.model import Task


def tables(shape: str) -> st.SearchStrategy[list[list[int]]]:
    """Score tables of a few nodes: small numbers, so that ties are frequent."""
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
    quick = greedy.place(score, index, copies, k, head)
    slow = greedy.one_by_one(score, index, copies, k, head)
    hint = greedy.HeapHint()
    for heap_runs in (0, 1):
        hint.heap_runs = heap_runs
        by_habit = greedy.place(score, index, copies, k, head, hint)
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
def test_scores_computed_in_small_batches(ladders: list[list[int]], k: int) -> None:
    with mock.patch.object(greedy, "_AT_ONCE", 2), mock.patch.object(greedy, "_GROWTH", 1):
        quick, slow = both(ladders, k)
    assert slow == quick


class Waves(SequentialScore):
    """A score that changes with every placed task."""

    def __init__(self, waves: list[list[int]]) -> None:
        self.waves = waves
        self.placed_n = np.zeros(12)
        self.turn = 0

    def score(self, task: Task) -> FloatArray:
        wave = self.waves[self.turn % len(self.waves)]
        return np.asarray([wave[n % len(wave)] for n in range(12)]) - self.placed_n

    def placed(self, task: Task, node: int) -> None:
        self.placed_n[node] += 1.0
        self.turn += 1

    def likely_nodes(self) -> list[int]:
        return [2, 3]


@settings(max_examples=300, deadline=None)
@given(
    tables("any"),
    st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=5), min_size=1, max_size=4),
    st.integers(0, 40),
    st.sampled_from([1, 32]),
)
def test_sequential_scores(
    ladders: list[list[int]], waves: list[list[int]], k: int, told: int
) -> None:
    ladders = ladders + [[] for _ in range(12 - len(ladders))]
    copies = np.asarray([len(ladder) for ladder in ladders], dtype=np.int64)
    head = np.asarray([float(ladder[0]) if ladder else 0.0 for ladder in ladders])

    def score(nodes: IntArray, levels: IntArray) -> FloatArray:
        pairs = zip(nodes.tolist(), levels.tolist(), strict=True)
        return np.asarray([ladders[n][level] for n, level in pairs], dtype=np.float64)

    tasks: list[Task] = [mock.create_autospec(Task)] * k
    with (
        mock.patch.object(sequential, "_BATCH", told),
        mock.patch.object(sequential, "_AT_ONCE", told),
        mock.patch.object(sequential, "_FEW", told),
    ):
        quick = sequential.place(score, copies, head, tasks, Waves(waves)).tolist()
    turn, slow, used = Waves(waves), list[int](), [0] * 12
    for task in tasks:
        part = turn.score(task)
        rungs = {n: ladders[n][used[n]] for n in range(12) if used[n] < copies[n]}
        if not rungs:
            break
        best = max(rungs, key=lambda n: (rungs[n] + part[n], -n))
        slow.append(best)
        used[best] += 1
        turn.placed(task, best)
    assert slow == quick


def test_spreading_alternates_nodes_and_packing_fills_the_first() -> None:
    spread, _ = both([[5, 4, 3], [5, 4, 3], [5, 4, 3]], 5)
    packed, _ = both([[3, 4, 5], [3, 4, 5], [3, 4, 5]], 5)
    assert spread == [1, 4, 7, 1, 4]
    assert packed == [1, 1, 1, 4, 4]


def test_no_more_tasks_are_placed_than_fit() -> None:
    quick, slow = both([[1], [2, 2]], 10)
    assert [4, 4, 1] == quick == slow

"""Five TensorFlow jobs of 2 ps + 4 workers, and capacity for two of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tools.founding_picture import (
    JOBS,
    MEMBERS,
    PICTURE,
    WITHOUT_GANG,
    Run,
    picture,
    simulate,
)

from hekla.scheduler.framework import config

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "why-gang.md"


def members(run: Run, number: int) -> list[int]:
    """Return the number of running pods of each job in a round, in descending order."""
    held = run.rounds[number].values()
    return sorted(Counter(name.split("-")[0] for name in held).values(), reverse=True)


def test_with_gang_two_jobs_run_whole_at_a_time_and_all_five_finish() -> None:
    run = simulate(config.DEFAULT)
    assert [members(run, n) for n in range(3)] == [[MEMBERS] * 2, [MEMBERS] * 2, [MEMBERS]]
    assert set(run.finished) == set(JOBS)
    assert len(run.rounds) == 3


def test_without_gang_every_job_gets_a_part_and_none_can_run() -> None:
    """Capacity for twelve of thirty pods, shared evenly: the deadlock that gangs prevent."""
    run = simulate(WITHOUT_GANG)
    assert members(run, 0) == [3, 3, 2, 2, 2]
    assert len(run.rounds) == 1, "after that nothing moves"
    assert run.finished == {}


def test_the_picture_and_the_table_in_the_guide_are_of_these_runs() -> None:
    assert picture() == PICTURE.read_text(), "run: python -m tools.founding_picture"
    words = GUIDE.read_text()
    assert "of jobs 3, 3, 2, 2 and 2" in words
    assert "of jobs 6 and 6" in words
    assert "5 of 5 after 3 rounds" in words

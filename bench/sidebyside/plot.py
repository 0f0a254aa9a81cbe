"""Line plots as PNG or SVG, such as pods bound over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.sidebyside.run import Result

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#aa3377", "#66ccee")
INCHES, DOTS_PER_INCH = (7.6, 3.8), 110
Points = Sequence[tuple[float, float]]


def draw(file: Path, title: str, rounds: Mapping[str, Sequence[Result]]) -> None:
    """Plot binds (solid) and creates (dashed) of the median round of each system."""
    with _axes(file, title, "seconds; dashed: created, full: bound") as axes:
        for number, (name, results) in enumerate(rounds.items()):
            shown, colour = _middle(results), COLOURS[number % len(COLOURS)]
            axes.plot(*_columns(shown.created), color=colour, linestyle="--", linewidth=1)
            axes.plot(*_columns(shown.bound), color=colour, linewidth=2, label=name)


def lines(file: Path, title: str, along: str, curves: Mapping[str, Points]) -> None:
    """Plot lines over one axis, from zero."""
    with _axes(file, title, along) as axes:
        for number, (name, points) in enumerate(curves.items()):
            axes.plot(*_columns(points), color=COLOURS[number % len(COLOURS)], label=name)


@contextmanager
def _axes(file: Path, title: str, along: str) -> Iterator[Axes]:
    # Not pyplot: it keeps every figure in memory.
    figure = Figure(figsize=INCHES, dpi=DOTS_PER_INCH, layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, loc="left")
    axes.set_xlabel(along, loc="right")
    axes.spines[["top", "right"]].set_visible(False)
    yield axes
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    figure.legend(loc="outside right upper", frameon=False)
    figure.savefig(file)


def _columns(points: Points) -> tuple[list[float], list[float]]:
    shown = [point for point in points if point[0] >= 0]
    return [x for x, _ in shown], [y for _, y in shown]


def _middle(results: Sequence[Result]) -> Result:
    """Return the round with the median rate."""
    return sorted(results, key=lambda r: r.numbers.get("pods_per_s", 0.0))[len(results) // 2]

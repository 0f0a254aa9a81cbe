"""Lines as a plain SVG; most of all cumulative pods created and bound over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from bench.sidebyside.run import Result

WIDTH, HEIGHT = 760, 380
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 40, 50
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#aa3377", "#66ccee")
Points = Sequence[tuple[float, float]]


def draw(title: str, rounds: Mapping[str, Sequence[Result]]) -> str:
    """One line of binds (full) and of creates (dashed) for each system: its middle round."""
    shown = {name: _middle(results) for name, results in rounds.items()}
    scale = _Scale.over(line for r in shown.values() for line in (r.created, r.bound))
    body = _frame(title, "seconds; dashed: created, full: bound", scale)
    for number, (name, result) in enumerate(shown.items()):
        colour = COLOURS[number % len(COLOURS)]
        body.append(_line(result.created, colour, scale, dashed=True))
        body.append(_line(result.bound, colour, scale))
        body += _key(number, name, colour)
    return _paper(body)


def lines(title: str, along: str, curves: Mapping[str, Points]) -> str:
    """Any lines over one axis, from zero."""
    scale = _Scale.over(curves.values())
    body = _frame(title, along, scale)
    for number, (name, points) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        body.append(_line(points, colour, scale))
        body += _key(number, name, colour)
    return _paper(body)


def _key(number: int, name: str, colour: str) -> list[str]:
    at = TOP + 18 + 18 * number
    return [
        f'<rect x="{LEFT + 12}" y="{at - 9}" width="12" height="10" fill="{colour}"/>',
        f'<text x="{LEFT + 30}" y="{at}">{escape(name)}</text>',
    ]


def _paper(body: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n' + "\n".join(body) + "\n</svg>\n"
    )


class _Scale:
    """From values to the paper."""

    def __init__(self, end: float, most: float) -> None:
        self.end, self.most = end, most

    @classmethod
    def over(cls, curves: Iterable[Points]) -> _Scale:
        """Large enough for all of them."""
        points = [point for curve in curves for point in curve]
        return cls(max(x for x, _ in points) or 1e-9, max(y for _, y in points) or 1)

    def x(self, value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * value / self.end

    def y(self, count: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * count / self.most


def _middle(results: Sequence[Result]) -> Result:
    """The round whose rate is the median."""
    return sorted(results, key=lambda r: r.numbers.get("pods_per_s", 0.0))[len(results) // 2]


def _frame(title: str, along: str, scale: _Scale) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = [
        f'<text x="{LEFT}" y="24" font-size="15">{escape(title)}</text>',
        f'<path d="M{LEFT},{TOP} V{bottom} H{right}" fill="none" stroke="#333"/>',
        f'<text x="{right}" y="{HEIGHT - 12}" text-anchor="end">{escape(along)}</text>',
    ]
    for step in range(5):
        seconds, count = scale.end * step / 4, scale.most * step / 4
        parts.append(
            f'<text x="{scale.x(seconds):.0f}" y="{bottom + 18}" text-anchor="middle">'
            f"{seconds:.3g}</text>"
        )
        parts.append(
            f'<text x="{LEFT - 8}" y="{scale.y(count) + 4:.0f}" text-anchor="end">'
            f"{count:,.0f}</text>"
        )
    return parts


def _line(points: Points, colour: str, scale: _Scale, *, dashed: bool = False) -> str:
    path = " ".join(f"{scale.x(s):.1f},{scale.y(c):.1f}" for s, c in points if s >= 0)
    style = ' stroke-dasharray="4 3" stroke-opacity="0.7"' if dashed else ' stroke-width="2"'
    return f'<polyline points="{path}" fill="none" stroke="{colour}"{style}/>'

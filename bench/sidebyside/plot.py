"""Cumulative pods created and bound over time, as a plain SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from bench.sidebyside.run import Result

WIDTH, HEIGHT = 760, 380
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 40, 50
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#aa3377", "#66ccee")
Points = Sequence[tuple[float, int]]


def draw(title: str, rounds: Mapping[str, Sequence[Result]]) -> str:
    """One line of binds (full) and of creates (dashed) for each system: its middle round."""
    shown = {name: _middle(results) for name, results in rounds.items()}
    end_s = max(line[-1][0] for r in shown.values() for line in (r.created, r.bound) if line)
    most = max(line[-1][1] for r in shown.values() for line in (r.created, r.bound) if line)
    scale = _Scale(max(end_s, 1e-9), max(most, 1))
    body = [*_frame(title, scale)]
    for number, (name, result) in enumerate(shown.items()):
        colour = COLOURS[number % len(COLOURS)]
        body.append(_line(result.created, colour, scale, dashed=True))
        body.append(_line(result.bound, colour, scale))
        at = TOP + 18 + 18 * number
        body.append(f'<rect x="{LEFT + 12}" y="{at - 9}" width="12" height="10" fill="{colour}"/>')
        body.append(f'<text x="{LEFT + 30}" y="{at}">{escape(name)}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n' + "\n".join(body) + "\n</svg>\n"
    )


class _Scale:
    """From seconds and pods to the paper."""

    def __init__(self, end_s: float, most: int) -> None:
        self.end_s, self.most = end_s, most

    def x(self, seconds: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * seconds / self.end_s

    def y(self, count: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * count / self.most


def _middle(results: Sequence[Result]) -> Result:
    """The round whose rate is the median."""
    return sorted(results, key=lambda r: r.numbers.get("pods_per_s", 0.0))[len(results) // 2]


def _frame(title: str, scale: _Scale) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = [
        f'<text x="{LEFT}" y="24" font-size="15">{escape(title)}</text>',
        f'<path d="M{LEFT},{TOP} V{bottom} H{right}" fill="none" stroke="#333"/>',
        f'<text x="{right}" y="{HEIGHT - 12}" text-anchor="end">seconds; dashed: created, '
        "full: bound</text>",
    ]
    for step in range(5):
        seconds, count = scale.end_s * step / 4, scale.most * step / 4
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

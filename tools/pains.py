"""Write the table of pains into docs/guides/from-volcano.md: `python -m tools.pains`.

The rows are tests/pains/catalogue.py. A test checks that the page is current.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.pains.catalogue import PAINS, REPOSITORIES, Pain

PAGE = Path(__file__).parents[1] / "docs" / "guides" / "from-volcano.md"
BEGIN = "<!-- Made by `python -m tools.pains` from tests/pains/catalogue.py. Do not edit. -->\n"
END = "<!-- End of what `python -m tools.pains` makes. -->\n"
VOLCANO = "1.14.1"


def table() -> str:
    rows = ["| | problem | reported | with Volcano | scenario |", "|---|---|---|---|---|"]
    rows += [_row(number, pain) for number, pain in enumerate(PAINS, 1)]
    return "".join(f"{row}\n" for row in rows)


def _row(number: int, pain: Pain) -> str:
    seen = f"reproduced with {VOLCANO}" if pain.reproduced else "as reported, not run"
    if "volcano" not in pain.issues and not pain.reproduced:
        seen = "no report cited"
    said = f"{pain.reported}: {'; '.join(_links(pain))}"
    return f"| {number} | {pain.title} | {said} | {seen} | `test_{number:02}_{pain.test}` |"


def _links(pain: Pain) -> Iterator[str]:
    for name, numbers in pain.issues.items():
        at = f"https://github.com/{REPOSITORIES[name]}/issues"
        yield f"{name} {', '.join(f'[{number}]({at}/{number})' for number in numbers)}"


def render(page: str) -> str:
    """Return the page with the current table."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} has no place for the table: {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text()))

"""Draw docs/images/why-gang.svg from a real run: `python -m tools.founding_picture`.

Five training jobs of 2 parameter servers and 4 workers, and capacity for two of them. The decisions
are those of the scheduler; a job finishes one round after all its members run.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from hekla.scheduler.framework import config
from hekla.testing import GroupBuilder, TestCluster, cluster, gang, node, pod

JOBS = [f"tf{i}" for i in range(5)]
MEMBERS, NODES, SLOTS = 6, 3, 4
WITHOUT_GANG = config.DEFAULT.replace("  - name: gang\n    enablePreemptable: false\n", "")
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "why-gang.svg"
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#aa3377")
MAX_ROUNDS = 6


def job(name: str) -> GroupBuilder:
    servers = gang(name, members=2, minimum=6, role="ps", roles={"ps": 2, "worker": 4}, cpu=1)
    workers = [pod(f"{name}-worker-{i}", group=name, role="worker", cpu=1) for i in range(4)]
    return servers.and_pods(*workers)


def world(conf: str) -> TestCluster:
    nodes = [node(f"n{i}", cpu=SLOTS) for i in range(NODES)]
    return cluster(nodes, [job(name) for name in JOBS], conf=conf)


@dataclass
class Run:
    """The placements of each round, and when each job finished."""

    rounds: list[dict[tuple[str, int], str]] = field(default_factory=list)
    finished: dict[str, int] = field(default_factory=dict)


def simulate(conf: str) -> Run:
    """Run rounds until nothing changes."""
    stage, run = world(conf), Run()
    slots: dict[tuple[str, int], str] = {}
    for number in range(1, MAX_ROUNDS + 1):
        result = stage.run()
        if not result.binds and run.rounds:
            break
        stage.apply(result)
        for name, where in sorted(result.binds.items()):
            free = next(slot for slot in range(SLOTS) if (where, slot) not in slots)
            slots[where, free] = name
        run.rounds.append(dict(slots))
        for name in JOBS:
            mine = [slot for slot, pod_name in slots.items() if pod_name.startswith(f"{name}-")]
            if len(mine) == MEMBERS:
                run.finished[name] = number
                for slot in mine:
                    del slots[slot]
                for task in list(stage.state.jobs[f"default/{name}"].tasks.values()):
                    stage.state.delete_pod(task.uid)
                stage.state.job_table.delete_group("default", name)
    return run


CELL_W, CELL_H, LEFT, TOP, GAP = 74, 16, 46, 58, 40


def draw(with_gang: Run, without: Run) -> str:
    """Return the picture as SVG; equal runs give equal bytes."""
    columns = max(len(with_gang.rounds), len(without.rounds))
    panel_w = LEFT + columns * CELL_W
    width = 2 * panel_w + GAP + 20
    height = TOP + NODES * (SLOTS * CELL_H + 8) + 36
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
        "<title>Five jobs of six pods on room for twelve, without and with gang scheduling</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    parts += panel(without, columns, 10, "Without gang: everybody starts, nobody can finish")
    parts += panel(with_gang, columns, 10 + panel_w + GAP, "With gang: all or nothing")
    return "\n".join([*parts, "</svg>", ""])


def panel(run: Run, columns: int, x0: int, title: str) -> list[str]:
    done = f"finished: {len(run.finished)} of {len(JOBS)}"
    parts = [text(x0, 20, title, "font-weight='bold'"), text(x0, 38, done)]
    for column in range(columns):
        # After the last round nothing changes.
        held = run.rounds[min(column, len(run.rounds) - 1)]
        if column >= len(run.rounds) and run.finished:
            held = {}
        x = x0 + LEFT + column * CELL_W
        parts.append(text(x, TOP - 4, f"round {column + 1}"))
        for n in range(NODES):
            for slot in range(SLOTS):
                y = TOP + n * (SLOTS * CELL_H + 8) + slot * CELL_H
                parts += cell(x, y, held.get((f"n{n}", slot), ""))
    for n in range(NODES):
        parts.append(text(x0, TOP + n * (SLOTS * CELL_H + 8) + 2 * CELL_H, f"node {n + 1}"))
    return parts


def cell(x: int, y: int, name: str) -> list[str]:
    colour = COLOURS[JOBS.index(name.split("-")[0])] if name else "#eeeeee"
    box = f'<rect x="{x}" y="{y}" width="{CELL_W - 4}" height="{CELL_H - 2}" fill="{colour}"/>'
    if not name:
        return [box]
    label = name.replace("worker", "w")
    return [box, text(x + 4, y + 11, label, "font-size='10' fill='#ffffff'")]


def text(x: int, y: int, words: str, more: str = "") -> str:
    extra = f" {more}".replace("'", '"') if more else ""
    return f'<text x="{x}" y="{y}"{extra}>{words}</text>'


def picture() -> str:
    return draw(simulate(config.DEFAULT), simulate(WITHOUT_GANG))


def main() -> None:
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(picture())
    sys.stdout.write(f"{PICTURE}\n")


if __name__ == "__main__":
    main()

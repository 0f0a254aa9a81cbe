"""A difference as text: the cluster, the configuration, and both lives cycle by cycle."""

from __future__ import annotations

import json
from collections.abc import Iterator

import yaml

from tests.fidelity.catalogue import Case
from tests.fidelity.generated import lives
from tests.fidelity.generated.compare import Difference, Level
from tests.fidelity.generated.lives import Cycle


def tell(case: Case, difference: Difference) -> str:
    return "\n".join(_lines(case, difference))


def _lines(case: Case, difference: Difference) -> Iterator[str]:
    yield f"seed {case.name}: differs in {difference.level.name} from cycle {difference.cycle + 1}"
    stated = yaml.safe_load(case.conf)
    yield f"  actions: {stated['actions']}"
    for tier in stated["tiers"]:
        yield f"  tier: {', '.join(_plugin(plugin) for plugin in tier['plugins'])}"
    for kind, held in case.body.items():
        if kind == "priorities":
            yield f"  priorities: {_flow(held)}"
            continue
        yield f"  {kind}:"
        for name, said in held.items():
            yield f"    {name}: {_flow(said)}"
    told: list[str] = []
    for number, pair in enumerate(zip(difference.theirs, difference.ours, strict=True)):
        lines = _pair(*pair)
        if lines != told:
            yield from (f"  cycle {number + 1}, {line}" for line in lines)
        told = lines
    if difference.level == Level.NODES:
        last = difference.cycle
        yield f"  on the nodes of cycle {last + 1}, Volcano: {_flow(difference.theirs[last].where)}"
        yield f"  on the nodes of cycle {last + 1}, hekla:   {_flow(difference.ours[last].where)}"
        return
    yield f"  running in the end, Volcano: {_flow(lives.running(difference.theirs))}"
    yield f"  running in the end, hekla:   {_flow(lives.running(difference.ours))}"


def _pair(theirs: Cycle, ours: Cycle) -> list[str]:
    """Return what both did; a cycle like the one before is not told again."""
    if (theirs.numbers, theirs.phases) == (ours.numbers, ours.phases):
        return [f"both: {_cycle(theirs)}"]
    return [f"Volcano: {_cycle(theirs)}", f"hekla:   {_cycle(ours)}"]


def _plugin(said: dict[str, object]) -> str:
    rest = {key: value for key, value in said.items() if key != "name"}
    return f"{said['name']}{_flow(rest) if rest else ''}"


def _cycle(cycle: Cycle) -> str:
    words = [
        f"{word} {_flow(counts)}"
        for word, counts in (
            ("placed", cycle.placed), ("evicted", cycle.evicted), ("pipelined", cycle.pipelined)
        )
        if counts
    ]  # fmt: skip
    return f"{'; '.join(words) or 'nothing'}; phases {_flow(cycle.phases)}"


def _flow(value: object) -> str:
    return json.dumps(value).replace('"', "")

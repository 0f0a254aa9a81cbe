"""Volcano in one process decides as it did on a real server (`make fidelity`).

The recorded cases hold the oracle to that, so that generated clusters may be compared with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tools.kube.gobuild import missing
from tools.peers.oracle import Oracle, OracleError
from tools.peers.volcano import ORACLE

from tests.fidelity import theirs
from tests.fidelity.catalogue import Case, cases
from tests.fidelity.outcome import comparable
from tests.fidelity.record import recorded
from tests.fidelity.theirs import TheirCluster

pytestmark = pytest.mark.oracle
ELSEWHERE = {"deviceshare", "extender", "numa", "rescheduling", "tdm", "usage"}
"""Files whose cases need other programs, or what Volcano keeps between sessions."""
CASES = [case for case in cases() if case.file not in ELSEWHERE]


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    reason = missing((ORACLE,))
    if reason:
        pytest.skip(reason)
    with Oracle() as running:
        yield running


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_decides_as_on_a_real_server(case: Case, oracle: Oracle) -> None:
    on_server = recorded(case.file)[case.name]
    want = comparable({key: on_server[key] for key in ("pods", "phases")}, case.compare)
    assert comparable(theirs.decide(case, oracle), case.compare) == want


def test_most_recorded_cases_are_covered() -> None:
    assert len(CASES) >= 190


def test_no_state_survives_a_world(oracle: Oracle) -> None:
    first = [comparable(theirs.decide(case, oracle), case.compare) for case in CASES]
    again = [comparable(theirs.decide(case, oracle), case.compare) for case in reversed(CASES)]
    assert again[::-1] == first


def test_equally_good_nodes_are_chosen_by_name(oracle: Oracle) -> None:
    body = {"nodes": {"n": {"count": 3}}, "groups": {"one": {"cpu": 1}}}
    conf = 'actions: "allocate"\ntiers: [{plugins: [{name: gang}, {name: predicates}]}]'
    world = TheirCluster(Case("here", "ties", conf, body))
    world.objects["podGroups"][0]["status"] = {"phase": "Inqueue"}
    assert world.run(oracle, "first")["binds"] == {"one-0": "n1"}
    assert world.run(oracle, "last")["binds"] == {"one-0": "n3"}


def test_a_configuration_that_volcano_refuses_is_an_error(oracle: Oracle) -> None:
    case = replace(CASES[0], conf='actions: "alocate"')
    with pytest.raises(OracleError, match="alocate"):
        TheirCluster(case).run(oracle)

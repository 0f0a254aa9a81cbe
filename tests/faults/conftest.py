"""One cluster for each server and worker; scenarios run on it one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tools.kube.cluster import parts_for
from tools.kube.gobuild import missing
from tools.kube.parts import KWOK

from tests.faults.sites import SITES, Site

SEED = 20260801


@pytest.fixture(scope="session", params=SITES)
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    reason = missing((KWOK,) if request.param == "embedded" else parts_for())
    if reason:
        pytest.skip(reason)
    with SITES[request.param](tmp_path_factory.mktemp(f"faults-{request.param}"), SEED) as made:
        yield made

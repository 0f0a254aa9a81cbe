"""A site for each server, and a namespace with an empty cluster for each test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from tools.kube.cluster import parts_for
from tools.kube.gobuild import missing
from tools.kube.parts import KWOK
from tools.waiting import until

from hekla.api import wellknown
from hekla.kube.resources import (
    JOBS,
    NAMESPACES,
    NODES,
    PODGROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
)
from tests.pains.site import CONF, Place, Site, embedded, real
from tests.realkube.backends import create_namespace

SITES = {"embedded": (embedded, (KWOK,)), "real": (real, parts_for(controllers=True))}
_KEPT = (wellknown.ROOT_QUEUE, wellknown.DEFAULT_QUEUE)


@pytest.fixture(scope="session", params=SITES)
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    start, parts = SITES[request.param]
    if reason := missing(parts):
        pytest.skip(reason)
    with start(tmp_path_factory.mktemp(request.param)) as made:
        if made.client.find(NAMESPACES, wellknown.SYSTEM_NAMESPACE) is None:
            made.client.create(NAMESPACES, {"metadata": {"name": wellknown.SYSTEM_NAMESPACE}})
        until(lambda: made.client.find(QUEUES, wellknown.DEFAULT_QUEUE) is not None)
        for name, value in (("low", 10), ("high", 1000)):
            made.client.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
        yield made


@pytest.fixture
def place(site: Site) -> Iterator[Place]:
    name = f"p{uuid.uuid4().hex[:8]}"
    create_namespace(site.client, name)
    site.configure(CONF.format(shares="proportion", more=""))
    made = Place(site, name)
    yield made
    client = site.client
    for kind in (JOBS, PODS):
        for obj in client.list(kind, namespace=name).items:
            client.delete(kind, obj["metadata"]["name"], namespace=name, missing_ok=True)
    until(lambda: not client.list(PODS, namespace=name).items)
    until(lambda: not client.list(JOBS, namespace=name).items)
    until(lambda: not client.list(PODGROUPS, namespace=name).items)  # they count in their queue
    for queue in client.list(QUEUES).items:
        if queue["metadata"]["name"] not in _KEPT:
            client.delete(QUEUES, queue["metadata"]["name"], missing_ok=True)
    for node in client.list(NODES).items:
        client.delete(NODES, node["metadata"]["name"], missing_ok=True)
    until(lambda: not list(site.scheduler.cluster.nodes))

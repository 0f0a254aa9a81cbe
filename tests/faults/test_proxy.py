"""The proxy injects exactly the configured faults."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tools.faults.proxy import Fault, Proxy, Trap, WatchFaults, anything, is_write

from hekla.kube import kubeconfig
from hekla.kube.errors import AlreadyExists, KubeError, NotFound, ServerError
from hekla.kube.resources import CONFIGMAPS
from hekla.kube.retries import NO_RETRIES
from hekla.kube.sync_client import SyncClient
from tests.faults.crew import ROOT


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("server")
    words = [sys.executable, "-m", "hekla.apiserver", "--data-dir", str(directory)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield directory / "kubeconfig"
        process.terminate()


@pytest.fixture
def proxy(server: Path, tmp_path: Path) -> Iterator[Proxy]:
    with Proxy(server, tmp_path, "scheduler-a", seed=1) as made:
        yield made


@pytest.fixture
def client(proxy: Proxy) -> Iterator[SyncClient]:
    with SyncClient(kubeconfig.load(proxy.kubeconfig), retry=NO_RETRIES, timeout_s=60) as made:
        yield made


def make(client: SyncClient, name: str) -> None:
    client.create(CONFIGMAPS, {"metadata": {"name": name}}, namespace="default")


def test_without_faults_the_proxy_is_transparent(proxy: Proxy, client: SyncClient) -> None:
    make(client, "plain")
    assert client.get(CONFIGMAPS, "plain", namespace="default")["metadata"]["name"] == "plain"
    with pytest.raises(NotFound):
        client.get(CONFIGMAPS, "none", namespace="default")
    (seen,) = proxy.history
    assert (seen.verb, seen.resource, seen.name, seen.code) == (
        "create",
        "configmaps",
        "plain",
        201,
    )
    assert seen.replica == "scheduler-a"


def test_an_error_comes_before_or_after_the_write(proxy: Proxy, client: SyncClient) -> None:
    proxy.faults = [Fault(is_write, status=500, times=1)]
    with pytest.raises(ServerError):
        make(client, "before")
    assert client.find(CONFIGMAPS, "before", namespace="default") is None
    proxy.faults = [Fault(is_write, status=500, passed_on=True, times=1)]
    with pytest.raises(ServerError):
        make(client, "after")
    with pytest.raises(AlreadyExists):
        make(client, "after")


def test_a_request_with_a_lost_response_is_executed(proxy: Proxy, client: SyncClient) -> None:
    proxy.faults = [Fault(is_write, drop=True, passed_on=True, times=1)]
    with pytest.raises(KubeError):
        make(client, "lost")
    assert client.find(CONFIGMAPS, "lost", namespace="default") is not None


def test_during_a_partition_nothing_passes_and_no_connection_closes(
    proxy: Proxy, client: SyncClient
) -> None:
    proxy.cut()
    with (
        SyncClient(kubeconfig.load(proxy.kubeconfig), retry=NO_RETRIES, timeout_s=0.3) as hurried,
        pytest.raises(KubeError),
    ):
        make(hurried, "cut")
    proxy.heal()
    assert client.find(CONFIGMAPS, "cut", namespace="default") is None
    make(client, "healed")


def test_a_trap_passes_some_requests_and_holds_the_rest(proxy: Proxy, client: SyncClient) -> None:
    proxy.trap = trap = Trap(is_write, let_through=1)
    make(client, "first")
    assert not trap.reached.is_set()
    with (
        SyncClient(kubeconfig.load(proxy.kubeconfig), retry=NO_RETRIES) as held,
        ThreadPoolExecutor(1) as beside,
    ):
        asking = beside.submit(make, held, "second")
        assert trap.reached.wait(60)
        assert client.find(CONFIGMAPS, "second", namespace="default") is None
        assert not asking.done()
        proxy.break_connections()
        with pytest.raises(KubeError):
            asking.result(60)


def test_events_are_repeated_and_watches_cut(proxy: Proxy, client: SyncClient) -> None:
    version = client.list(CONFIGMAPS, namespace="default").resource_version
    proxy.watch_faults = WatchFaults(repeat=1.0)
    with SyncClient(kubeconfig.load(proxy.kubeconfig)) as watching:
        with watching.watch(
            CONFIGMAPS, namespace="default", resource_version=version, timeout_s=30
        ) as events:
            make(client, "seen")
            names = [next(events).object["metadata"]["name"] for _ in range(2)]
        assert names == ["seen", "seen"]
        proxy.watch_faults = WatchFaults(cut=1.0)
        with (
            watching.watch(
                CONFIGMAPS, namespace="default", resource_version=version, timeout_s=30
            ) as events,
            pytest.raises(KubeError),
        ):
            list(events)


def test_the_same_seed_fails_the_same_requests(server: Path, tmp_path: Path) -> None:
    def outcome(name: str) -> list[bool]:
        (tmp_path / name).mkdir()
        with Proxy(server, tmp_path / name, "drawn", seed=3) as proxy:
            proxy.faults = [Fault(anything, status=500, chance=0.5)]
            with SyncClient(kubeconfig.load(proxy.kubeconfig), retry=NO_RETRIES) as client:
                return [_fails(client) for _ in range(20)]

    first = outcome("one")
    assert first == outcome("two")
    assert True in first
    assert False in first


def _fails(client: SyncClient) -> bool:
    try:
        client.list(CONFIGMAPS, namespace="default")
    except ServerError:
        return True
    return False


def test_the_proxy_requires_tls(proxy: Proxy) -> None:
    host, _, port = kubeconfig.load(proxy.kubeconfig).server.removeprefix("https://").partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert not plain.recv(100).startswith(b"HTTP/1.1 200")

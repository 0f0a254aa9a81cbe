"""The load collector against a real HTTP server: polls, failures, reconfiguration, replay."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

import pytest

from hekla.kube.calls import Call
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.plugins import builtin
from hekla.scheduler.service.decision_log import MAX_BYTES, DecisionLog
from hekla.scheduler.service.load import collector
from hekla.scheduler.service.replay import replay

from .test_decision_log import files_in
from .test_service import configure
from .world import PATIENCE_S, Send, Turning, World

CONF = """\
actions: "enqueue, allocate"
tiers:
- plugins: [{name: gang}, {name: usage}, {name: predicates}]
metrics: {type: %s, address: "%s", interval: 1s%s}
"""
Head = tuple[str, dict[str, str]]


class Server:
    """Answers every request with `body`; `asked` are first lines and headers."""

    def __init__(self) -> None:
        self.asked: list[Head] = []
        self.body: bytes | None = b"{}"
        self.status = 200
        self._writers: set[asyncio.StreamWriter] = set()
        self._heard = asyncio.Condition()

    async def until(self, condition: Callable[[], Any]) -> None:
        """Check the condition at each request: the response before it is processed by then."""
        async with asyncio.timeout(PATIENCE_S), self._heard:
            await self._heard.wait_for(lambda: bool(condition()))

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"

    async def stop(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode().strip().split("\r\n")
                headers = dict(line.lower().split(": ", 1) for line in lines)
                await reader.readexactly(int(headers.get("content-length", 0)))
                self.asked.append((first, headers))
                async with self._heard:
                    self._heard.notify_all()
                if self.body is None:
                    return  # and never respond
                size = f"Content-Length: {len(self.body)}\r\n"
                writer.write(f"HTTP/1.1 {self.status} X\r\n{size}\r\n".encode() + self.body)
        except (asyncio.IncompleteReadError, ConnectionError):
            self._writers.discard(writer)
            writer.close()


def loads(**cpu: float) -> bytes:
    result = [
        {"metric": {"instance": name, "hekla": f"{what}/600"}, "value": [0, str(value)]}
        for name, percent in cpu.items()
        for what, value in (("cpu", percent), ("memory", 10))
    ]
    data = {"resultType": "vector", "result": result}
    return json.dumps({"status": "success", "data": data}).encode()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    await made.start()
    yield made
    await made.stop()


async def begun(world: World, server: Server, **options: Any) -> Turning:
    await configure(world, CONF % ("prometheus", server.url, ""))
    return await world.scheduler(**options)


@pytest.mark.parametrize("max_bytes", [MAX_BYTES, 1])
async def test_a_job_is_pending_while_nodes_are_overloaded(
    world: World, server: Server, tmp_path: Path, max_bytes: int
) -> None:
    """The log replays the same, with one checkpoint or with one for every cycle."""
    log = DecisionLog(tmp_path / "decisions", max_bytes=max_bytes, max_files=99)
    server.body = loads(n1=95, n2=90)
    await world.node("n1", 4)
    await world.node("n2", 4)
    scheduler = await begun(world, server, decision_log=log)
    await server.until(lambda: scheduler.cluster.node_table.readings)
    await world.gang("train", 2)
    await world.condition("train", "the CPU load of the node exceeds the upper limit.")
    server.body = loads(n1=95, n2=40)
    assert set((await world.bound("train-0", "train-1")).values()) == {"n2"}
    text = (await scheduler.render_metrics()).decode()
    assert 'hekla_load_nodes{readings="fresh"} 2' in text
    assert 'hekla_load_reads_total{result="done"}' in text
    assert all(first.startswith("GET /api/v1/query?query=") for first, _ in server.asked)
    log.flush()
    outcomes = [each for path in files_in(tmp_path) for each in replay(path, builtin())]
    assert sum(outcome.count("Bind") for outcome in outcomes) == 2
    assert all(outcome.is_same for outcome in outcomes)
    log.close()


BAD = {
    "an error of the server": (500, b"oops"),
    "no JSON": (200, b"<html>"),
    "too large an answer": (200, b" " * 100_000),
    "nodes that nobody knows": (200, loads(stranger=10)),
    "another place": (302, b""),
}


@pytest.mark.parametrize("case", BAD)
async def test_a_failing_load_source_is_logged_once_and_stops_no_cycle(
    world: World,
    server: Server,
    case: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(collector, "MAX_BYTES", 50_000)
    server.status, server.body = BAD[case]
    await world.node("n1", 4)
    scheduler = await begun(world, server)
    await world.gang("a", 1)
    await world.bound("a-0")
    await server.until(lambda: len(server.asked) >= 3)
    said = [r for r in caplog.messages if "the load of nodes cannot be read" in r]
    assert len(said) == 1
    assert "readings older than 300 s do not count" in said[0]
    assert b'hekla_load_reads_total{result="failed"}' in await scheduler.render_metrics()
    assert scheduler.cluster.node_table.readings == {}
    server.status, server.body = 200, loads(n1=10)
    await server.until(lambda: scheduler.cluster.node_table.readings)
    assert "answers again" in caplog.text


async def test_a_load_source_that_hangs_times_out_and_is_polled_again(
    world: World, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.body = None
    await world.node("n1", 4)
    scheduler = await begun(world, server)
    await world.gang("a", 1)
    await world.bound("a-0")
    await server.until(lambda: "cannot be read" in caplog.text)
    server.body = loads(n1=10)
    await server.until(lambda: scheduler.cluster.node_table.readings)


async def test_a_new_load_source_is_polled_as_soon_as_it_is_configured(
    world: World, server: Server
) -> None:
    await world.node("n1", 4)
    server.body = loads(n1=10)
    scheduler = await begun(world, server)
    await server.until(lambda: scheduler.cluster.node_table.readings)
    bucket = {"key": "n1", "cpu": {"value": 0.7}, "memory": {"value": 0.1}}
    server.body = json.dumps({"aggregations": {"600": {"hosts": {"buckets": [bucket]}}}}).encode()
    more = ', elasticsearch: {username: reader, password: "hunter2"}'
    await configure(world, CONF % ("elasticsearch", server.url, more))
    await server.until(lambda: scheduler.cluster.node_table.readings[600]["n1"].cpu == 70.0)
    first, headers = server.asked[-1]
    assert first == "POST /metricbeat-*/_search HTTP/1.1"
    assert headers["authorization"].startswith("basic ")


IN_CLUSTER: dict[str, dict[str, Any]] = {
    "metrics-api": {
        "/apis/metrics.k8s.io/v1beta1/nodes": {
            "metadata": {"name": "n1"},
            "usage": {"cpu": "3800m", "memory": "1Gi"},
        }
    },
    "prometheus_adaptor": {
        f"/apis/custom.metrics.k8s.io/v1beta1/nodes/*/node_{what}_usage_avg": {
            "describedObject": {"kind": "Node", "name": "n1"},
            "value": value,
        }
        for what, value in (("cpu", "950m"), ("memory", "125m"))
    },
}


@pytest.mark.parametrize("kind", IN_CLUSTER)
async def test_the_metrics_api_is_read_through_the_api_server(
    world: World, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The API does not exist at first; later the API server aggregates it."""
    client = await world.connect()
    is_served = asyncio.Event()

    async def aggregated(call: Call, send: Send) -> bytes:
        found = IN_CLUSTER[kind].get(call.path)
        if found is None or not is_served.is_set():
            return await send(call)
        return json.dumps({"items": [found]}).encode()

    client.fault = aggregated
    await configure(world, CONF % (kind, "", ""))
    await world.node("n1", 4)
    scheduler = await world.scheduler(client)
    await world.gang("early", 1)
    await world.bound("early-0")
    is_served.set()
    await world.gang("late", 1, cpu="4")
    await world.condition("late", "the CPU load of the node exceeds the upper limit.")
    assert scheduler.cluster.node_table.readings[0]["n1"].cpu == 95.0
    assert scheduler.cluster.node_table.readings[0]["n1"].memory == 12.5
    assert f"{kind}: the load of nodes cannot be read: this cluster does not serve" in caplog.text


async def test_a_custom_plugin_chooses_the_period_of_loads(world: World, server: Server) -> None:
    class Watches(Plugin, name="watches"):
        load_period_s = 120

    conf = CONF.replace("{name: usage}", "{name: watches}") % ("prometheus", server.url, "")
    await configure(world, conf)
    registry = builtin()
    registry.add(Watches)
    await world.scheduler(registry=registry)
    await server.until(lambda: server.asked)
    (first, *_) = server.asked
    assert "[120s:30s]" in unquote_plus(first[0])


async def test_without_the_metrics_section_no_source_is_polled(
    world: World, server: Server
) -> None:
    await configure(world, CONF.partition("metrics")[0])
    await world.node("n1", 4)
    await world.scheduler()
    await world.gang("a", 1)
    await world.bound("a-0")
    assert server.asked == []

"""The Prometheus query, evaluated by a real Prometheus over a small exporter (make prometheus).

The exporter reports the past fifteen minutes at once: its samples have timestamps. Expected numbers
are computed by hand; subqueries sample every 30 s at round times while time passes, hence the
tolerance.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tools.kube.gobuild import missing
from tools.peers import prometheus

from hekla.scheduler.state.load import USAGE_PERIOD_S

from .test_service import configure
from .world import World

pytestmark = [
    pytest.mark.prometheus,
    pytest.mark.skipif(bool(missing([prometheus.PROMETHEUS])), reason="needs Go"),
]

CONF = """\
actions: "enqueue, allocate, shuffle"
tiers:
- plugins: [{name: gang}, {name: usage}, {name: predicates}, {name: rescheduling}]
metrics: {type: prometheus, address: "%s", interval: 1s}
"""
PAST_S, STEP_S = 1200, 15
GIB = 2**30


class Host:
    """A node of two CPUs: the idle share of each CPU and the free share of memory, by age."""

    def __init__(
        self,
        idle: Callable[[float], tuple[float, float]],
        free: Callable[[float], float] | None = None,
    ) -> None:
        self.idle = idle
        self.free = free

    def told(self, now: float) -> Iterator[str]:
        """Yield past samples in the format of node-exporter."""
        begin = now - PAST_S
        seconds = [0.0, 0.0]
        for at in range(int(begin), int(now), STEP_S):
            parts = self.idle(now - at)
            seconds = [s + STEP_S * part for s, part in zip(seconds, parts, strict=True)]
            for cpu, idle in enumerate(seconds):
                for mode, value in (("idle", idle), ("user", at - begin)):
                    labels = f'{{cpu="{cpu}",mode="{mode}"}}'
                    yield f"node_cpu_seconds_total{labels} {value} {at * 1000}"
            if self.free is not None:
                available = int(8 * GIB * self.free(now - at))
                yield f"node_memory_MemAvailable_bytes {available} {at * 1000}"
                yield f"node_memory_MemTotal_bytes {8 * GIB} {at * 1000}"


HOSTS = {
    "steady": Host(lambda ago: (0.2, 0.3), lambda ago: 0.4),
    "ported:9100": Host(lambda ago: (0.9, 0.9), lambda ago: 1.0),
    # All of it in use until five and a half minutes ago, nothing since.
    "eased": Host(
        lambda ago: (0.0, 0.0) if ago > 330 else (1.0, 1.0), lambda ago: float(ago <= 330)
    ),
    "forgetful": Host(lambda ago: (0.5, 0.5)),
    "stranger": Host(lambda ago: (0.5, 0.5), lambda ago: 0.5),
}


WHOLE = ("steady", "ported", "eased")
"""Nodes with both values."""


@contextmanager
def exporters() -> Iterator[dict[str, str]]:
    """Serve each host; every scrape gets the same samples."""
    now = time.time()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.removeprefix("/")
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write("".join(f"{line}\n" for line in HOSTS[name].told(now)).encode())

        def log_message(self, *words: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield {name: f"127.0.0.1:{server.server_port}/{name}" for name in HOSTS}
    finally:
        server.shutdown()
        server.server_close()


async def test_prometheus_accepts_the_query_and_returns_the_means(
    world: World, tmp_path: Path
) -> None:
    for name in (*WHOLE, "forgetful", "unheard"):
        await world.node(name, 4)
    with exporters() as targets, prometheus.running(tmp_path, targets) as url:
        await configure(world, CONF % url)
        scheduler = await world.scheduler()
        await scheduler.turns(
            lambda: len(scheduler.cluster.node_table.readings.get(USAGE_PERIOD_S, ())) == len(WHOLE)
        )
        means = {
            (name, period_s): (reading.cpu, reading.memory)
            for period_s, readings in scheduler.cluster.node_table.readings.items()
            for name, reading in readings.items()
        }
    assert means == {
        ("steady", 600): pytest.approx((75, 60), abs=0.5),
        ("steady", 300): pytest.approx((75, 60), abs=0.5),
        ("ported", 600): pytest.approx((10, 0), abs=0.5),
        ("ported", 300): pytest.approx((10, 0), abs=0.5),
        # 270 of 600 seconds, and less by each second that passes here. The CPU eases from 100 to 0
        # on the way, as rates are looked at over five minutes: (300 / 2 + 270) of 600 seconds, and
        # 270 / 300 of 270 / 2 seconds of 300.
        ("eased", 600): pytest.approx((68, 43), abs=12),
        ("eased", 300): pytest.approx((38, 0), abs=12),
    }

"""The measured load of the nodes of a case: a small Prometheus for Volcano, values for hekla.

    load: {n1: {cpu: 90, memory: 20}, n2: {cpu: 10}, n3: {}}   percent; missing values are unknown

A configuration names the address as `ADDRESS`.

Note: Volcano's first sessions run before it has queried. So its queues are opened after that.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from hekla.scheduler.state.load import USAGE_PERIOD_S, ByPeriod, Reading
from tests.fidelity.catalogue import Case, Json

ADDRESS = "http://prometheus:9090"
PERIODS_S = (USAGE_PERIOD_S, 300)
"""The metrics that `usage` and, by default, `rescheduling` read."""
_KINDS = {"node_cpu_seconds_total": "cpu", "node_memory_MemAvailable_bytes": "memory"}


def readings(case: Case, now: float) -> ByPeriod:
    """Return the samples as our sources read them: a node with half a sample has none."""
    found = {
        node: Reading(float(said["cpu"]), float(said["memory"]), now)
        for node, said in case.body.get("load", {}).items()
        if {"cpu", "memory"} <= said.keys()
    }
    return dict.fromkeys(PERIODS_S, found)


@dataclass
class Source:
    """The case with the address of the source, and its queries."""

    case: Case
    told: set[tuple[str, str]] = field(default_factory=set)

    @property
    def has_told_all(self) -> bool:
        load = self.case.body.get("load", {})
        return self.told >= {(node, what) for node in load for what in _KINDS.values()}


@contextmanager
def answering(case: Case) -> Iterator[Source]:
    """Run a source if the case has load."""
    source = Source(case)
    if "load" not in case.body:
        yield source
        return
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(source))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        source.case = replace(case, conf=case.conf.replace(ADDRESS, address))
        yield source
    finally:
        server.shutdown()
        server.server_close()


def answer(source: Source, query: str) -> Json:
    """Return one sample of one node in Prometheus' format; empty if unknown."""
    what = next(what for metric, what in _KINDS.items() if metric in query)
    (node,) = set(re.findall(r'instance="([^"]+)"', query))
    source.told.add((node, what))
    value = source.case.body["load"].get(node, {}).get(what)
    sample = {"metric": {"instance": node}, "value": [time.time(), str(value)]}
    result = [] if value is None else [sample]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def _handler(source: Source) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            text = json.dumps(answer(source, parse_qs(form)["query"][0])).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *words: Any) -> None:
            pass

    return Handler

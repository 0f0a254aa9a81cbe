"""An HTTP extender with the responses of a case, for Volcano and hekla.

    extender:
      refuses: {n1: too hot}      predicate: nodes, with the message
      scores: {n2: 1000}          prioritize
      keeps_out: [a]              jobEnqueueable: jobs
      unready: [a]                jobReady: jobs
      overused: [q1]              queueOverused: queues
      spares: [old-0]             preemptable and reclaimable: pods
      broken: [predicate]         verbs that fail

A configuration names its address as `EXTENDER`.

Note: it reads only the fields of Volcano's requests, so ours must have the same.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.fidelity.catalogue import Case, Json

ADDRESS = "EXTENDER"
PERMIT, REJECT = 1, -1


@contextmanager
def answering(case: Case) -> Iterator[Case]:
    """Run the extender of a case, if it has one; yield the case with its address."""
    said: Json | None = case.body.get("extender")
    if said is None:
        yield case
        return
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(said))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        yield replace(case, conf=case.conf.replace(ADDRESS, address))
    finally:
        server.shutdown()
        server.server_close()


def answer(said: Json, verb: str, asked: Json) -> Json:
    """Return the response to a request, in Volcano's format."""
    match verb:
        case "predicate":
            return {"status": said.get("refuses", {}).get(asked["node"]["Name"], ""), "code": 0}
        case "prioritize":
            scores = said.get("scores", {})
            return {
                "nodeScore": {node["Name"]: scores.get(node["Name"], 0) for node in asked["nodes"]}
            }
        case "jobEnqueueable":
            return {
                "status": REJECT if asked["job"]["Name"] in said.get("keeps_out", ()) else PERMIT
            }
        case "jobReady":
            return {"status": asked["job"]["Name"] not in said.get("unready", ())}
        case "queueOverused":
            return {"overused": asked["queue"]["Name"] in said.get("overused", ())}
        case "preemptable" | "reclaimable":
            spared = said.get("spares", ())
            victims = [task for task in asked["evictees"] if task["Name"] not in spared]
            return {"status": PERMIT, "victims": victims}
    raise AssertionError(f"unknown verb {verb}")


def _handler(said: Json) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            verb = self.path.removeprefix("/")
            is_broken = verb in said.get("broken", ())
            text = b"" if is_broken else json.dumps(answer(said, verb, asked)).encode()
            try:
                self.send_response(500 if is_broken else 200)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)
            except OSError:  # the client closed the connection
                self.close_connection = True

        def log_message(self, *words: Any) -> None:
            pass

    return Handler

"""extender: a real HTTP server that answers, is late, too large or invalid."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from hekla.scheduler.errors import ConfigError
from hekla.scheduler.framework import config
from hekla.scheduler.plugins import builtin, extender
from hekla.testing import TestCluster, cluster, gang, node, queue

Json = dict[str, Any]
Answer = Callable[[Json], Any]
CONF = """\
actions: "%s"
tiers:
- plugins:
  - name: gang
  - name: extender
    arguments: {%s}
- plugins: [{name: predicates}, {name: drf}]
"""
ALL = {
    "onSessionOpenVerb": "open",
    "onSessionCloseVerb": "close",
    "predicateVerb": "predicate",
    "prioritizeVerb": "prioritize",
    "preemptableVerb": "preemptable",
    "reclaimableVerb": "reclaimable",
    "queueOverusedVerb": "overused",
    "jobEnqueueableVerb": "enqueueable",
    "jobEnqueuedVerb": "enqueued",
    "jobReadyVerb": "ready",
    "allocateFuncVerb": "allocate",
    "deallocateFuncVerb": "deallocate",
}

PATIENT = "30s"
"""The longest allowed: a busy machine needs time for its own responses."""


class Server:
    """Responds to each verb by a function of the request; bytes are sent unchanged."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: list[tuple[str, Json]] = []
        self.was_asked, self.let_go = threading.Event(), threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                verb = self.path.removeprefix("/prefix/")
                outer.asked.append((verb, body))
                outer.was_asked.set()
                found: Any = outer.answers[verb](body) if verb in outer.answers else {}
                status = found if isinstance(found, int) else 200
                text = found if isinstance(found, bytes) else json.dumps(found).encode()
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(text)))
                    self.end_headers()
                    self.wfile.write(text)
                except OSError:
                    self.close_connection = True

            def log_message(self, *words: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}/prefix"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def verbs(self) -> list[str]:
        return [verb for verb, _ in self.asked]

    def hangs(self, body: Json) -> Json:
        self.let_go.wait(600)
        return {}

    def stop(self) -> None:
        self.let_go.set()
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.stop()


def conf(server: Server, *verbs: str, actions: str = "enqueue, allocate", **more: Any) -> str:
    chosen = {verb: ALL[verb] for verb in verbs}
    given = {"urlPrefix": server.url, "httpTimeout": PATIENT, **chosen, **more}
    text = ", ".join(f"extender.{key}: {json.dumps(value)}" for key, value in given.items())
    return CONF % (actions, text)


def two_nodes(settings: str, **job: Any) -> TestCluster:
    asks = {"cpu": 1, **job}
    return cluster([node("n1"), node("n2")], [gang("j", members=2, **asks)], conf=settings)


def refuses_n1(body: Json) -> Json:
    return {"status": "too loud", "code": 2} if body["node"]["Name"] == "n1" else {}


def test_a_node_that_the_extender_refuses_is_infeasible_with_its_reason(
    server: Server,
) -> None:
    server.answers["predicate"] = refuses_n1
    assert two_nodes(conf(server, "predicateVerb")).run().binds == {"j-0": "n2", "j-1": "n2"}
    result = two_nodes(conf(server, "predicateVerb"), cpu=3).run()
    assert result.binds == {}
    assert "too loud" in result.why("j")
    _, body = server.asked[0]
    assert body["task"]["Name"] == "j-0"
    assert body["task"]["Resreq"]["MilliCPU"] == 1000.0
    assert body["task"]["Status"] == 1, "pending, as Volcano counts"
    assert body["task"]["Pod"]["metadata"]["name"] == "j-0"
    for amount in ("Idle", "Allocatable"):
        assert body["node"][amount]["MilliCPU"] == 4000.0
    assert body["node"]["Node"]["metadata"]["labels"] == {"kubernetes.io/hostname": "n1"}


def test_a_message_without_a_code_is_a_refusal(server: Server) -> None:
    server.answers["predicate"] = lambda _: {"status": "no", "code": 0}
    assert two_nodes(conf(server, "predicateVerb")).run().binds == {}


def scored(best: str, _: Any) -> Any:
    return {"nodeScore": {best: 50}}


def test_scores_decide_between_nodes(server: Server) -> None:
    for best in ("n1", "n2"):
        server.answers["prioritize"] = partial(scored, best)
        binds = two_nodes(conf(server, "prioritizeVerb")).run().binds
        assert set(binds.values()) == {best}


def test_the_extender_is_called_only_for_managed_resources(server: Server) -> None:
    server.answers["predicate"] = lambda _: {"status": "no", "code": 1}
    settings = conf(server, "predicateVerb", managedResources=["example.com/fpga"])
    assert set(two_nodes(settings).run().binds) == {"j-0", "j-1"}
    assert server.asked == []


def test_the_extender_votes_on_enqueueing_and_readiness(server: Server) -> None:
    new = {"phase": "Pending", "min_resources": {"cpu": 2}}
    verbs = ("jobEnqueueableVerb", "jobEnqueuedVerb", "jobReadyVerb")
    server.answers |= {"enqueueable": lambda _: {"status": -1}, "ready": lambda _: {"status": True}}
    assert two_nodes(conf(server, *verbs), **new).run().binds == {}
    assert "enqueued" not in server.verbs()
    server.answers["enqueueable"] = lambda _: {"status": 1}
    assert set(two_nodes(conf(server, *verbs), **new).run().binds) == {"j-0", "j-1"}
    assert "enqueued" in server.verbs()
    server.answers["ready"] = lambda _: {"status": False}
    assert two_nodes(conf(server, *verbs), **new).run().binds == {}


def test_an_overused_queue_gets_no_more_tasks(server: Server) -> None:
    server.answers["overused"] = lambda body: {"overused": body["queue"]["Name"] == "default"}
    assert two_nodes(conf(server, "queueOverusedVerb")).run().binds == {}


def test_an_allocation_that_it_refuses_keeps_the_whole_gang_from_being_bound(
    server: Server,
) -> None:
    server.answers["allocate"] = lambda _: {"errorMessage": "no licence"}
    verbs = ("allocateFuncVerb", "deallocateFuncVerb")
    assert two_nodes(conf(server, *verbs)).run().binds == {}
    server.asked.clear()
    assert set(two_nodes(conf(server, *verbs, ignorable=True)).run().binds) == {"j-0", "j-1"}
    assert [body["task"]["Name"] for _, body in server.asked] == ["j-0", "j-1"]


def reclaiming(settings: str) -> TestCluster:
    return cluster(
        [node("n1", cpu=2)],
        [
            gang("old", members=2, minimum=0, cpu=1, queue="rich", running_on=["n1", "n1"]),
            gang("new", cpu=1, queue="poor"),
        ],
        queues=[queue("rich"), queue("poor")],
        conf=settings,
    )


def test_the_extender_selects_victims(server: Server) -> None:
    settings = conf(server, "reclaimableVerb", actions="allocate, reclaim")

    def second(body: Json) -> Json:
        return {"status": 1, "victims": [e for e in body["evictees"] if e["Name"] == "old-1"]}

    server.answers["reclaimable"] = second
    assert reclaiming(settings).run().evictions == ["old-1"]
    server.answers["reclaimable"] = lambda _: {"status": -1}
    assert reclaiming(settings).run().evictions == []


def test_the_extender_is_called_at_session_open_and_close(server: Server) -> None:
    two_nodes(conf(server, "onSessionOpenVerb", "onSessionCloseVerb")).run()
    assert server.verbs() == ["open", "close"]
    _, body = server.asked[0]
    assert set(body) == {"Jobs", "Nodes", "Queues", "NamespaceInfo", "RevocableNodes"}
    assert set(body["Nodes"]) == {"n1", "n2"}
    assert body["Jobs"]["default/j"]["MinAvailable"] == 2


BAD: dict[str, Any] = {
    "an error": 500,
    "no JSON": b"<html>",
    "JSON that is no object": b"[1]",
    "a message that is none": b'{"status": {"message": "no"}}',
    "a message that never ends": b'{"status": ' + b"[" * 1900,
    "too much": b'{"x": "' + b"y" * 3000 + b'"}',
}


@pytest.mark.parametrize("case", BAD)
def test_without_a_response_no_task_is_placed_and_no_request_is_repeated(
    server: Server, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extender, "MAX_BYTES", 2000)
    server.answers["predicate"] = lambda _: BAD[case]
    result = two_nodes(conf(server, "predicateVerb")).run()
    assert result.binds == {}
    assert "extender: no answer" in result.why("j")
    assert server.verbs() == ["predicate"]


@pytest.mark.parametrize("case", BAD)
def test_an_ignorable_extender_that_fails_is_left_out(
    server: Server, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extender, "MAX_BYTES", 2000)
    server.answers["predicate"] = lambda _: BAD[case]
    result = two_nodes(conf(server, "predicateVerb", ignorable=True)).run()
    assert set(result.binds) == {"j-0", "j-1"}
    assert [failure.plugin for failure in result.plan.failures] == ["extender"]
    assert server.verbs() == ["predicate"]


BAD_SCORES: dict[str, Any] = {
    "nothing": {"nodeScore": {"n1": None}},
    "a word": {"nodeScore": {"n1": "many"}},
    "a list": {"nodeScore": {"n1": []}},
    "beyond reason": {"nodeScore": {"n1": 10**400}},
    "without end": b'{"nodeScore": ' + b"[" * 100_000,
}


@pytest.mark.parametrize("case", BAD_SCORES)
def test_invalid_scores_do_not_drop_the_extenders_refusals(server: Server, case: str) -> None:
    server.answers["predicate"] = refuses_n1
    server.answers["prioritize"] = lambda _: BAD_SCORES[case]
    settings = conf(server, "predicateVerb", "prioritizeVerb")
    jobs = [gang("j", members=2, cpu=1), gang("k", members=2, cpu=1)]
    result = cluster([node("n1", cpu=2), node("n2", cpu=2)], jobs, conf=settings).run()
    assert "n1" not in result.binds.values()
    assert result.plan.failures == []
    ignorable = conf(server, "predicateVerb", "prioritizeVerb", ignorable=True)
    failures = two_nodes(ignorable).run().plan.failures
    assert {failure.plugin for failure in failures} == {"extender"}


@pytest.mark.parametrize("status", ["no", None, [], {}, 1.5])
def test_an_invalid_victim_answer_evicts_no_pod(server: Server, status: Any) -> None:
    server.answers["reclaimable"] = lambda _: {"status": status}
    settings = conf(server, "reclaimableVerb", actions="enqueue, allocate, reclaim")
    result = reclaiming(settings).run()
    assert result.evictions == []
    assert result.plan.failures == []


def test_an_internal_error_does_not_drop_the_extenders_refusals(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: object) -> None:
        raise RuntimeError("nobody thought of this")

    monkeypatch.setattr(extender, "_task", fails)
    server.answers["predicate"] = refuses_n1
    result = two_nodes(conf(server, "predicateVerb")).run()
    assert result.binds == {}
    assert [failure.hook for failure in result.plan.failures] == ["predicate"]


@pytest.mark.parametrize("ignorable", [True, False])
def test_an_extender_that_hangs_times_out(server: Server, ignorable: bool) -> None:
    server.answers["predicate"] = server.hangs
    settings = conf(server, "predicateVerb", httpTimeout="50ms", ignorable=ignorable)
    assert bool(two_nodes(settings).run().binds) == ignorable
    assert server.was_asked.wait(60), "it may hear of it later than we gave up"
    assert server.verbs() == ["predicate"]


def test_without_extender_a_job_is_ready_only_if_ignorable(server: Server) -> None:
    server.stop()
    assert two_nodes(conf(server, "jobReadyVerb")).run().binds == {}
    assert set(two_nodes(conf(server, "jobReadyVerb", ignorable=True)).run().binds)


WRONG = {
    "no address": ('extender.predicateVerb: "p"', "extender.urlPrefix must be like"),
    "another scheme": ('extender.urlPrefix: "ftp://x"', "extender.urlPrefix must be like"),
    "no port": ('extender.urlPrefix: "http://x:99999999"', "extender.urlPrefix must be like"),
    "no time": (
        'extender.urlPrefix: "http://x", extender.httpTimeout: 0s',
        "extender.httpTimeout must be",
    ),
    "too long": (
        'extender.urlPrefix: "http://x", extender.httpTimeout: 5m',
        "extender.httpTimeout must be",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_argument_is_refused(case: str) -> None:
    text, want = WRONG[case]
    with pytest.raises(ConfigError, match=want):
        config.parse(CONF % ("allocate", text), builtin())

"""extender: a custom policy behind HTTP, called during a cycle.

Each configured verb is a call, POSTed as JSON to `<urlPrefix>/<verb>`. Field names are Volcano's;
objects within (`Pod`, `Node`) have names and labels only. Requests are sent from the cycle's
thread, one by one on one connection, so `predicateVerb` costs one request per node.

A response that is late, too large or invalid ends the calls of the cycle, so a dead extender costs
a cycle one `httpTimeout`. With `extender.ignorable` the plugin then has no vote, like any plugin
that fails. Without it, nothing that needs its answer is placed, enqueued or evicted.

Unlike in Volcano, `jobReady` is false on an error unless ignorable (Volcano does the opposite), a
failure to open counts like any other, and an allocation that the extender refuses keeps its gang
from being bound. Answers are not in the decision log: a replay calls the extender again.
"""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import SplitResult, urlsplit

import msgspec
import numpy as np

from hekla.scheduler.errors import PluginError
from hekla.scheduler.framework.answers import PERMIT, REJECT, Vote
from hekla.scheduler.framework.arguments import Key, duration_s
from hekla.scheduler.framework.nodes import Nodes
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.state.dimensions import (
    CPU,
    MEMORY,
    BoolArray,
    Dimensions,
    FloatArray,
    IntArray,
)
from hekla.scheduler.state.model import Job, Queue, Task

if TYPE_CHECKING:
    from hekla.scheduler.session.session import Session

MAX_BYTES: Final = 10 * 1024 * 1024
LONGEST_S: Final = 30.0
CYCLE_S: Final = 5.0
"""The time limit of all calls of one cycle."""
MAX_SCORE: Final = 1e12
VERBS: Final[Mapping[str, str]] = {
    "open": "session_open",
    "close": "session_close",
    "predicate": "predicate_verb",
    "node_order": "prioritize",
    "preemptable": "preemptable_verb",
    "reclaimable": "reclaimable_verb",
    "overused": "queue_overused",
    "job_enqueueable": "enqueueable",
    "job_enqueued": "enqueued",
    "job_ready": "ready",
    "allocated": "allocate",
    "deallocated": "deallocate",
}
"""The argument that enables each hook."""
Json = dict[str, Any]


class NoAnswer(Exception):
    """The extender's response is late, too large or invalid."""


class Extender(Plugin, name="extender"):
    """Calls an HTTP server."""

    url_prefix: Annotated[str, Key("extender.urlPrefix")] = ""
    http_timeout: Annotated[str, Key("extender.httpTimeout")] = "1s"
    ignorable: Annotated[bool, Key("extender.ignorable")] = False
    managed_resources: Annotated[list[str], Key("extender.managedResources")] = []  # noqa: RUF012
    session_open: Annotated[str, Key("extender.onSessionOpenVerb")] = ""
    session_close: Annotated[str, Key("extender.onSessionCloseVerb")] = ""
    predicate_verb: Annotated[str, Key("extender.predicateVerb")] = ""
    prioritize: Annotated[str, Key("extender.prioritizeVerb")] = ""
    preemptable_verb: Annotated[str, Key("extender.preemptableVerb")] = ""
    reclaimable_verb: Annotated[str, Key("extender.reclaimableVerb")] = ""
    queue_overused: Annotated[str, Key("extender.queueOverusedVerb")] = ""
    enqueueable: Annotated[str, Key("extender.jobEnqueueableVerb")] = ""
    enqueued: Annotated[str, Key("extender.jobEnqueuedVerb")] = ""
    ready: Annotated[str, Key("extender.jobReadyVerb")] = ""
    allocate: Annotated[str, Key("extender.allocateFuncVerb")] = ""
    deallocate: Annotated[str, Key("extender.deallocateFuncVerb")] = ""

    def configure(self, raw: Mapping[str, Any], switches: Mapping[str, bool]) -> None:
        super().configure(raw, switches)
        self._url = _address(self.url_prefix)
        self._timeout_s = duration_s("extender.httpTimeout", self.http_timeout)
        if not 0 < self._timeout_s <= LONGEST_S:
            raise PluginError(
                f"extender.httpTimeout must be at most {LONGEST_S:g}s and more than 0"
            )
        asked = {hook for hook, verb in VERBS.items() if getattr(self, verb)}
        if asked & {"allocated", "deallocated"}:
            asked.add("affects_other_nodes")
        # These hooks also maintain the connection and the refused gangs.
        vars(self)["hooks"] = frozenset(asked | {"open", "close", "job_ready"})
        vars(self)["essential"] = not self.ignorable  # an error of this plugin counts alike

    def open(self, session: Session) -> None:
        self._session = session
        self._wire: http.client.HTTPConnection | None = None
        self._broken = ""
        self._spent_s = 0.0
        self._is_closed = False
        self._said_ready: dict[str, bool] = {}
        self._refused: set[str] = set()
        self._scores: dict[str, FloatArray] = {}
        if self.session_open:
            cluster = session.cluster
            body = {
                "Jobs": {job.key: _job(job, session.dimensions) for job in session.jobs},
                "Nodes": {node["Name"]: node for node in self._nodes(session.nodes)},
                "Queues": {name: _queue(queue) for name, queue in cluster.queues.items()},
                "NamespaceInfo": {name: {"Name": name} for name in sorted(cluster.namespaces)},
                "RevocableNodes": {},
            }
            self._ask(self.session_open, body, bool, {})

    def close(self, session: Session) -> None:
        try:
            if self.session_close and not self._broken:
                self._ask(self.session_close, {}, bool, {})
        finally:
            self._is_closed = True
            self._hang_up()

    # --- hooks --------------------------------------------------------------------------------

    def predicate(self, task: Task, nodes: Nodes) -> Iterator[tuple[BoolArray, str]]:
        if not self._is_interested(task):
            return
        masks: dict[str, BoolArray] = {}
        about = _task(task, self._session.dimensions)
        for number, node in enumerate(self._nodes(self._session.nodes)):
            refusal = self._ask(
                self.predicate_verb, {"task": about, "node": node}, _refusal, "extender: no answer"
            )
            if refusal:
                mask = masks.setdefault(refusal, np.zeros(len(nodes.all), dtype=bool))
                mask[number] = True
        for reason in sorted(masks):
            yield masks[reason], reason

    def node_order(self, task: Task, nodes: Nodes) -> FloatArray:
        known = self._scores.get(task.uid)
        if known is None:
            known = self._scores[task.uid] = self._asked_scores(task)
        return nodes.take(known)

    def _asked_scores(self, task: Task) -> FloatArray:
        names = [node.name for node in self._session.nodes.all]
        if not self._is_interested(task):
            return np.zeros(len(names))
        body = {
            "task": _task(task, self._session.dimensions),
            "nodes": list(self._nodes(self._session.nodes)),
        }
        found: Mapping[str, float] = self._ask(self.prioritize, body, _node_scores, {})
        return np.asarray([found.get(name, 0.0) for name in names], dtype=np.float64)

    def preemptable(self, task: Task, candidates: Sequence[Task]) -> BoolArray | None:
        return self._victims(self.preemptable_verb, task, candidates)

    def reclaimable(self, task: Task, candidates: Sequence[Task]) -> BoolArray | None:
        return self._victims(self.reclaimable_verb, task, candidates)

    def _victims(self, verb: str, task: Task, candidates: Sequence[Task]) -> BoolArray | None:
        if not self._is_interested(task):
            return None
        dimensions = self._session.dimensions
        body = {
            "evictor": _task(task, dimensions),
            "evictees": [_task(each, dimensions) for each in candidates],
        }
        named: set[str] | None = self._ask(verb, body, _named, set())
        if named is None:
            return None
        return np.asarray([each.uid in named for each in candidates], dtype=bool)

    def overused(self, queue: Queue) -> bool:
        body = {"queue": _queue(queue)}
        return bool(self._ask(self.queue_overused, body, lambda a: _bool(a, "overused"), True))

    def job_enqueueable(self, job: Job) -> Vote | None:
        body = {"job": _job(job, self._session.dimensions)}
        vote: Vote | None = self._ask(self.enqueueable, body, _vote, REJECT)
        return vote

    def job_enqueued(self, job: Job) -> None:
        self._ask(self.enqueued, {"job": _job(job, self._session.dimensions)}, bool, None)

    def job_ready(self, job: Job) -> bool:
        if job.key in self._refused:
            return False
        if not self.ready or self._is_closed:  # status is written after the session closes
            return self._said_ready.get(job.key, True)
        body = {"job": _job(job, self._session.dimensions)}
        said = bool(self._ask(self.ready, body, lambda a: _bool(a, "status"), False))
        self._said_ready[job.key] = said
        return said

    def affects_other_nodes(self, task: Task) -> bool:
        return True  # the extender receives each task

    def allocated(self, task: Task, nodes: IntArray) -> None:
        self._notify(self.allocate, task)

    def deallocated(self, task: Task, nodes: IntArray) -> None:
        self._notify(self.deallocate, task)

    def _notify(self, verb: str, task: Task) -> None:
        if not self._is_interested(task):
            return
        body = {"task": _task(task, self._session.dimensions)}
        error = self._ask(verb, body, lambda a: str(a.get("errorMessage") or ""), "no answer")
        if error and not self.ignorable and task.job is not None:
            self._refused.add(task.job.key)

    def _is_interested(self, task: Task) -> bool:
        names = self._session.dimensions.names
        managed = self.managed_resources
        return not managed or any(names[row] in managed for row in task.klass.rows)

    def _nodes(self, nodes: Nodes) -> Iterator[Json]:
        dimensions, columns = self._session.dimensions, self._session.columns
        ledgers = {
            "Allocatable": columns.allocatable_rn,
            "Idle": columns.idle_rn,
            "Used": columns.used_rn,
            "Releasing": columns.releasing_rn,
            "Pipelined": columns.pipelined_rn,
        }
        for column, node in enumerate(nodes.all):
            meta = {
                "name": node.name,
                "labels": dict(node.labels),
                "annotations": dict(node.annotations),
            }
            yield {
                "Name": node.name,
                "Node": {"metadata": meta},
                **{
                    key: _amounts(kept_rn[:, column], dimensions)
                    for key, kept_rn in ledgers.items()
                },
            }

    # --- calls --------------------------------------------------------------------------------

    def _ask(self, verb: str, body: Json, read: Callable[[Json], Any], without: Any) -> Any:
        """Return the response; `without` it if the plugin is essential, else raise."""
        if not self._broken:
            try:
                return read(self._post(verb, body))
            except Exception as error:  # any error means that there is no response
                self._broken = f"{verb}: {str(error) or type(error).__name__}"
                self._hang_up()
        if self.ignorable:
            raise NoAnswer(self._broken)
        return without

    def _hang_up(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def _post(self, verb: str, body: Json) -> Json:
        if self._spent_s > CYCLE_S:
            raise NoAnswer(f"its questions took more than {CYCLE_S:g} s of the cycle")
        began_s = time.monotonic()
        try:
            return self._exchange(f"{self._url.path.rstrip('/')}/{verb}", msgspec.json.encode(body))
        finally:
            self._spent_s += time.monotonic() - began_s

    def _exchange(self, path: str, body: bytes) -> Json:
        if self._wire is None:
            kind = (
                http.client.HTTPSConnection
                if self._url.scheme == "https"
                else http.client.HTTPConnection
            )
            self._wire = kind(self._url.hostname or "", self._url.port, timeout=self._timeout_s)
            self._wire.connect()
        # A server that sends one byte at a time is never late for a single read.
        late = threading.Timer(self._timeout_s, _cut, (self._wire.sock,))
        late.daemon = True
        late.start()
        try:
            self._wire.request("POST", path, body, {"Content-Type": "application/json"})
            with self._wire.getresponse() as answer:
                text = answer.read(MAX_BYTES + 1)
        finally:
            late.cancel()
        if len(text) > MAX_BYTES:
            raise NoAnswer(f"the answer is larger than {MAX_BYTES} bytes")
        if answer.status != 200:
            raise NoAnswer(f"the answer is HTTP {answer.status}")
        found = msgspec.json.decode(text) if text.strip() else {}
        if not isinstance(found, dict):
            raise NoAnswer("the answer is no JSON object")
        return found


def _cut(wire: socket.socket) -> None:
    try:
        wire.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it is closed already


def _address(text: str) -> SplitResult:
    found = urlsplit(text)
    try:
        is_good = found.scheme in ("http", "https") and bool(found.hostname) and found.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        raise PluginError(f"extender.urlPrefix must be like http://host:port/path, not {text!r}")
    return found


# --- responses --------------------------------------------------------------------------------


def _refusal(answer: Json) -> str:
    """Return why a node is infeasible; empty if it is feasible.

    `status` is the message, under any of its names. A message without a code is a refusal too.
    """
    message = answer.get("status") or ""
    if not isinstance(message, str):
        raise NoAnswer("status is no message")
    return f"extender: {message[:200] or 'refused'}" if message or answer.get("code") else ""


def _node_scores(answer: Json) -> dict[str, float]:
    if answer.get("errorMessage"):
        raise NoAnswer(str(answer["errorMessage"])[:200])
    given = answer.get("nodeScore") or {}
    if not isinstance(given, dict):
        raise NoAnswer("nodeScore is no map")
    for score in given.values():
        if isinstance(score, bool) or not isinstance(score, int | float) or abs(score) > MAX_SCORE:
            raise NoAnswer("a score is no number, or beyond reason")
    return {name: float(score) for name, score in given.items()}


def _named(answer: Json) -> set[str] | None:
    status = _status(answer)
    if status == 0:
        return None
    victims = answer.get("victims") or []
    if status < 0 or not isinstance(victims, list):
        return set()
    return {str(each.get("UID", "")) for each in victims if isinstance(each, dict)}


def _vote(answer: Json) -> Vote | None:
    status = _status(answer)
    return PERMIT if status > 0 else REJECT if status < 0 else None


def _status(answer: Json) -> int:
    status = answer.get("status", 0)
    if not isinstance(status, int):
        raise NoAnswer("status is no vote")
    return status


def _bool(answer: Json, key: str) -> bool:
    if not isinstance(answer.get(key), bool):
        raise NoAnswer(f"{key} is neither true nor false")
    return bool(answer[key])


# --- requests ---------------------------------------------------------------------------------


def _amounts(vector_r: FloatArray, dimensions: Dimensions) -> Json:
    scalars = {
        name: float(vector_r[row])
        for row, name in enumerate(dimensions.names)
        if row not in (CPU, MEMORY) and vector_r[row]
    }
    return {
        "MilliCPU": float(vector_r[CPU]),
        "Memory": float(vector_r[MEMORY]),
        "ScalarResources": scalars,
    }


def _task(task: Task, dimensions: Dimensions) -> Json:
    return {
        "UID": task.uid,
        "Name": task.name,
        "Namespace": task.namespace,
        "Job": task.job.key if task.job is not None else "",
        "TaskRole": task.role,
        "Priority": task.priority,
        "Status": 1 << task.status,
        "NodeName": task.node_name,
        "Preemptable": task.is_preemptable,
        "Resreq": _amounts(task.klass.request_r, dimensions),
        "Pod": {
            "metadata": {
                "name": task.name,
                "namespace": task.namespace,
                "uid": task.uid,
                "labels": dict(task.labels),
            }
        },
    }


def _job(job: Job, dimensions: Dimensions) -> Json:
    return {
        "UID": job.key,
        "Name": job.name,
        "Namespace": job.namespace,
        "Queue": job.queue_name,
        "Priority": job.priority,
        "MinAvailable": job.min_member,
        "Allocated": _amounts(job.allocated_r, dimensions),
        "Tasks": {uid: _task(task, dimensions) for uid, task in job.tasks.items()},
    }


def _queue(queue: Queue) -> Json:
    return {"UID": queue.name, "Name": queue.name, "Weight": queue.weight}

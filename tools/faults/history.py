"""What was written to an API server, by whom and with which answer: the material of `laws`.

It is read from a kube-apiserver's audit log, or taken down by a `proxy.Proxy` where there is none.

What a newcomer gets wrong: neither is in the order in which the server stored things. Two moments
are known of each write, when it was asked for and when it was answered; the store's own order is
the resource version of what was answered.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

Json = dict[str, Any]
WRITES = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
AUDIT_RULES: list[Json] = [
    {
        "level": "RequestResponse",
        "verbs": [*WRITES.values(), "deletecollection"],
        "resources": [
            {"group": "", "resources": ["pods", "pods/*", "nodes"]},
            {"group": "batch.volcano.sh", "resources": ["jobs", "jobs/*"]},
            {"group": "scheduling.volcano.sh", "resources": ["podgroups", "podgroups/*"]},
            {"group": "coordination.k8s.io", "resources": ["leases"]},
        ],
    },
    {"level": "None", "verbs": ["get", "list", "watch"]},
    {"level": "Metadata"},
]
"""What an audit policy must say, so that the log can be judged."""
_TAG = "replica/"


@dataclass(frozen=True, slots=True)
class Write:
    """One request that meant to change something, and what the server said to it."""

    at: float
    """When the server received it."""
    done: float
    """When it had answered."""
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int
    agent: str
    asked: Json = field(default_factory=dict)
    answer: Json = field(default_factory=dict)

    @property
    def succeeded(self) -> bool:
        return 200 <= self.code < 300

    @property
    def replica(self) -> str:
        """Which replica of a component sent it, if a proxy has put its name on it."""
        return self.agent.partition(_TAG)[2]

    @property
    def version(self) -> int:
        """The place of the result in the store's order; 0 if the answer does not show it."""
        text = (self.answer.get("metadata") or {}).get("resourceVersion", "")
        return int(text) if text.isdigit() else 0


def tagged(agent: str, replica: str) -> str:
    """A user agent that says which replica speaks."""
    return f"{agent} {_TAG}{replica}"


def read_audit(path: Path) -> list[Write]:
    """All writes of a kube-apiserver's audit log."""
    with path.open() as lines:
        return list(from_audit(lines))


def from_audit(lines: Iterable[str]) -> Iterator[Write]:
    for line in lines:
        # A server that is killed may leave half a line.
        if not line.endswith("\n"):
            continue
        event = json.loads(line)
        about = event.get("objectRef") or {}
        if event["stage"] not in ("ResponseComplete", "Panic") or event["verb"] == "get":
            continue
        answer = _whole(event.get("responseObject"))
        yield Write(
            at=_seconds(event["requestReceivedTimestamp"]),
            done=_seconds(event["stageTimestamp"]),
            verb=event["verb"],
            resource=about.get("resource", ""),
            subresource=about.get("subresource", ""),
            namespace=about.get("namespace", ""),
            name=about.get("name") or (answer.get("metadata") or {}).get("name", ""),
            code=(event.get("responseStatus") or {}).get("code", 0),
            agent=event.get("userAgent", ""),
            asked=_whole(event.get("requestObject")),
            answer=answer,
        )


def from_exchange(
    at: float, done: float, method: str, path: str, agent: str, asked: bytes, code: int, body: bytes
) -> Write:
    """A write as a proxy saw it."""
    answer = _decoded(body)
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    resource, name, subresource = (*parts, "", "", "")[:3]
    verb = WRITES[method]
    if verb == "delete" and not name:
        verb = "deletecollection"
    named = name or (answer.get("metadata") or {}).get("name", "")
    return Write(
        at,
        done,
        verb,
        resource,
        subresource,
        namespace,
        named,
        code,
        agent,
        _decoded(asked),
        answer,
    )


def _decoded(body: bytes) -> Json:
    try:
        return _whole(json.loads(body))
    except ValueError:  # protobuf, an empty body
        return {}


def _whole(value: Any) -> Json:
    # A JSON patch is a list; nothing here needs to look into one.
    return value if isinstance(value, dict) else {}


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()

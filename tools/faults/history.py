"""The writes to an API server with client and response: the input of `laws`.

They are read from the audit log of kube-apiserver, or recorded by a `proxy.Proxy`.

Note: neither is in the order of the store. Each write has a request time and a response time; the
order of the store is the resource version in the response.
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
"""The audit policy that the laws need."""
_TAG = "replica/"


@dataclass(frozen=True, slots=True)
class Write:
    """One write request and its response."""

    at: float
    """When the server received it."""
    done: float
    """When it had responded."""
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
        """Return the replica that sent it, if a proxy added its name."""
        return self.agent.partition(_TAG)[2]

    @property
    def version(self) -> int:
        """Return the resource version of the result; 0 if the response has none."""
        text = (self.answer.get("metadata") or {}).get("resourceVersion", "")
        return int(text) if text.isdigit() else 0


def tagged(agent: str, replica: str) -> str:
    """Return a user agent with the name of the replica."""
    return f"{agent} {_TAG}{replica}"


def read_audit(path: Path) -> list[Write]:
    """Return all writes of an audit log."""
    with path.open() as lines:
        return list(from_audit(lines))


def from_audit(lines: Iterable[str]) -> Iterator[Write]:
    for line in lines:
        # A killed server may leave a partial line.
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
    # A JSON patch is a list; the laws do not need it.
    return value if isinstance(value, dict) else {}


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()

"""Counts from the audit log of the server: requests by program, and bindings by pod."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import msgspec


class _Object(msgspec.Struct):
    resource: str = ""
    subresource: str = ""
    name: str = ""
    namespace: str = ""


class _Status(msgspec.Struct):
    code: int = 0


class _Entry(msgspec.Struct):
    verb: str = ""
    userAgent: str = ""
    objectRef: _Object | None = None
    responseStatus: _Status | None = None


@dataclass
class Calls:
    """Requests during a load, without watches."""

    by_agent: dict[str, Counter[str]] = field(default_factory=dict)
    """User agent and "verb resource/subresource" of each request."""
    bindings: Counter[str] = field(default_factory=Counter)
    refused_bindings: int = 0

    def of(self, agent: str) -> Counter[str]:
        """Return all requests of programs with this text in their name."""
        total: Counter[str] = Counter()
        for name, counts in self.by_agent.items():
            if agent in name:
                total += counts
        return total


def read(path: Path, offset: int, namespace: str) -> Calls:
    """Return the requests logged after `offset`."""
    calls, decoder = Calls(), msgspec.json.Decoder(_Entry)
    with path.open("rb") as log:
        log.seek(offset)
        for line in log:
            if line.endswith(b"\n"):
                _count(calls, decoder.decode(line), namespace)
    return calls


def _count(calls: Calls, entry: _Entry, namespace: str) -> None:
    about = entry.objectRef or _Object()
    if entry.verb == "watch":
        return
    what = f"{entry.verb} {about.resource}"
    if about.subresource:
        what += f"/{about.subresource}"
    calls.by_agent.setdefault(entry.userAgent, Counter())[what] += 1
    if about.subresource == "binding" and about.namespace == namespace:
        code = entry.responseStatus.code if entry.responseStatus is not None else 0
        if 200 <= code < 300:
            calls.bindings[about.name] += 1
        else:
            calls.refused_bindings += 1

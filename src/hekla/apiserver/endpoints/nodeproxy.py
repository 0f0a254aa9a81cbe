"""The way from the API to a pod's node: logs, and streams such as exec.

The server knows nodes only through this interface. On one machine the node agent registers itself
here; a cluster of agents would be reached over the network behind the same interface.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(slots=True)
class LogRequest:
    container: str
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    since_s: int | None = None
    since_time: str = ""
    limit_bytes: int | None = None
    run: int | None = None
    """Which run of the container, by its number from 0; not in Kubernetes. Nothing is said where
    that run is no longer, or not yet, there to be read."""


@dataclass(slots=True)
class StreamRequest:
    """exec, attach or portforward."""

    verb: str
    container: str = ""
    command: tuple[str, ...] = ()
    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False
    ports: tuple[int, ...] = ()


class Channels(Protocol):
    """The two ends of a stream. Channel numbers are Kubernetes': 0 stdin, 1 stdout, 2 stderr,
    3 error (a Status, at the end), 4 resize."""

    async def receive(self) -> tuple[int, bytes] | None:
        """The next piece from the client; None when it has gone or closed everything."""

    async def send(self, channel: int, data: bytes) -> None: ...


class NodeAgent(Protocol):
    """What a node can do for the API server. `pod` is the stored object."""

    def logs(self, pod: dict[str, Any], request: LogRequest) -> AsyncIterator[bytes]: ...

    async def stream(
        self, pod: dict[str, Any], request: StreamRequest, channels: Channels
    ) -> dict[str, Any]:
        """Run to the end and return the final Status."""


class Nodes:
    """Agents by node name."""

    def __init__(self) -> None:
        self._agents: dict[str, NodeAgent] = {}

    def register(self, node: str, agent: NodeAgent) -> None:
        self._agents[node] = agent

    def unregister(self, node: str) -> None:
        self._agents.pop(node, None)

    def agent_of(self, node: str) -> NodeAgent | None:
        return self._agents.get(node)

"""Connections to node agents: logs, and streams such as exec.

The server uses nodes only through this interface. On one machine the node agent registers itself
here; remote agents could be connected through the same interface.
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
    """Number of the container's run from 0; an extension of hekla. Empty output if that run's log
    does not exist."""


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
    """Both ends of a stream. Channels as in Kubernetes: 0 stdin, 1 stdout, 2 stderr, 3 error (a
    final Status), 4 resize."""

    async def receive(self) -> tuple[int, bytes] | None:
        """Return the next chunk of the client; None after it disconnected."""

    async def send(self, channel: int, data: bytes) -> None: ...


class NodeAgent(Protocol):
    """Operations of a node agent. `pod` is the stored object."""

    def logs(self, pod: dict[str, Any], request: LogRequest) -> AsyncIterator[bytes]: ...

    def kept_log(
        self, metadata: dict[str, Any], request: LogRequest
    ) -> AsyncIterator[bytes] | None:
        """Return the output of a container of a deleted pod; None if the node does not have it.

        `metadata` has the name, namespace and uid.
        """

    async def stream(
        self, pod: dict[str, Any], request: StreamRequest, channels: Channels
    ) -> dict[str, Any]:
        """Run the stream and return the final Status."""


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

    def kept_log(
        self, metadata: dict[str, Any], request: LogRequest
    ) -> AsyncIterator[bytes] | None:
        """Return the output of a container of a deleted pod, from the node that has it."""
        agents = {id(agent): agent for agent in self._agents.values()}  # one may serve many nodes
        kept = (agent.kept_log(metadata, request) for agent in agents.values())
        return next((lines for lines in kept if lines is not None), None)

"""exec, attach and portforward: a WebSocket from the client, connected to the node agent.

The protocol is Kubernetes' `v5.channel.k8s.io` (and v4): each binary message begins with a channel
number; the final message, on channel 3, is a `Status`. Errors before the upgrade are plain HTTP
responses, because kubectl shows those to its user.

portforward has a data and an error channel per port, each opened by the port number, as client
libraries do. kubectl uses SPDY for it, also inside a WebSocket, and is refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

from hekla.apiserver import errors
from hekla.apiserver.auth.authenticator import User
from hekla.apiserver.endpoints.nodeproxy import NodeAgent, Nodes, StreamRequest
from hekla.apiserver.endpoints.subresources import only_container
from hekla.apiserver.registry.options import Options
from hekla.apiserver.registry.resources import Resources
from hekla.apiserver.request_info import Query, RequestInfo
from hekla.units.objects import Object

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
VERBS = ("exec", "attach", "portforward")
MAX_PORTS = 64
_OPTIONS = {
    "exec": "PodExecOptions",
    "attach": "PodAttachOptions",
    "portforward": "PodPortForwardOptions",
}


class Gone(Exception):
    """The client disconnected."""


class SocketChannels:
    """Channels over an accepted WebSocket."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send

    async def receive(self) -> tuple[int, bytes] | None:
        """Return the next chunk; (CLOSE, channel) when the client closed a channel."""
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                return None
            data = message.get("bytes") or (message.get("text") or "").encode()
            if data:
                return data[0], data[1:]

    async def send(self, channel: int, data: bytes) -> None:
        try:
            await self._send({"type": "websocket.send", "bytes": bytes((channel,)) + data})
        except (RuntimeError, OSError) as error:
            raise Gone from error


class Streams:
    """Opens streams to pods. The caller has authenticated and authorized the request."""

    def __init__(self, resources: Resources, nodes: Nodes) -> None:
        self._resources = resources
        self._nodes = nodes

    async def handle(
        self, scope: Scope, receive: Receive, send: Send, target: RequestInfo, query: Query
    ) -> None:
        protocol = next((p for p in PROTOCOLS if p in scope.get("subprotocols", ())), None)
        if protocol is None:
            raise errors.bad_request(
                f"{target.subresource} needs one of the WebSocket protocols {', '.join(PROTOCOLS)}"
            )
        pod, request, agent = self._open(target, query)
        await send({"type": "websocket.accept", "subprotocol": protocol})
        channels = SocketChannels(receive, send)
        with contextlib.suppress(Gone):
            status = await agent.stream(pod, request, channels)
            if request.verb != "portforward":
                await channels.send(ERROR, msgspec.json.encode(status))
            await send({"type": "websocket.close", "code": 1000})

    async def review(self, target: RequestInfo, query: Query, user: User) -> None:
        """Run admission for a connection, before the pod is looked up."""
        served = self._resources.registry.lookup("", "v1", "pods")
        assert served is not None
        obj: Object = {"kind": _OPTIONS[target.subresource], "apiVersion": "v1"}
        if target.subresource == "portforward":
            obj["ports"] = list(_ports(query)) if "ports" in query.values else []
        else:
            for flag in ("stdin", "stdout", "stderr", "tty"):
                if query.flag(flag):
                    obj[flag] = True
            if query.get("container"):
                obj["container"] = query.get("container")
        if target.subresource == "exec":
            obj["command"] = query.repeated.get("command", [])
        await self._resources.admission.review_subresource(
            "CONNECT",
            served,
            target.name,
            target.namespace,
            target.subresource,
            obj,
            Options(user=user),
        )

    def refusal(self, target: RequestInfo, query: Query) -> errors.StatusError:
        """Return the error of a request without WebSocket.

        kubectl retries with an older protocol after a refused WebSocket and shows only the second
        error, so this one has the actual reason.
        """
        self._open(target, query)
        return errors.bad_request(
            f"{target.subresource} needs a WebSocket with one of the protocols "
            f"{', '.join(PROTOCOLS)}; SPDY is not supported"
        )

    def _open(self, target: RequestInfo, query: Query) -> tuple[Object, StreamRequest, NodeAgent]:
        """Return the pod, the stream request and the node agent, or raise."""
        served = self._resources.registry.lookup("", "v1", "pods")
        assert served is not None
        entry = self._resources.find(served, target.namespace, target.name)
        pod: Object = msgspec.json.decode(entry.body)
        request = StreamRequest(
            verb=target.subresource,
            container=query.get("container") or only_container(pod),
            command=tuple(query.repeated.get("command", ())),
            stdin=query.flag("stdin"),
            stdout=query.flag("stdout"),
            stderr=query.flag("stderr"),
            tty=query.flag("tty"),
            ports=_ports(query) if target.subresource == "portforward" else (),
        )
        self._check(pod, request)
        if not pod["spec"].get("nodeName"):
            raise errors.bad_request(f"pod {target.name} does not have a host assigned")
        agent = self._nodes.agent_of(pod["spec"]["nodeName"])
        if agent is None:
            raise errors.unavailable(
                f"no node agent for pod {target.name!r} is connected: {request.verb} is not "
                "possible now"
            )
        return pod, request, agent

    def _check(self, pod: Object, request: StreamRequest) -> None:
        name = pod["metadata"]["name"]
        if request.verb == "portforward":
            if (pod.get("status") or {}).get("phase") != "Running":
                raise errors.bad_request(f"pod {name} is not running: no port can be forwarded")
            return
        if request.verb == "exec" and not request.command:
            raise errors.bad_request("you must specify at least one command for exec")
        if not (request.stdin or request.stdout or request.stderr):
            raise errors.bad_request("you must specify at least one of stdin, stdout, stderr")
        spec = pod["spec"]
        known = [*spec["containers"], *(spec.get("initContainers") or ())]
        if request.container not in [container["name"] for container in known]:
            raise errors.bad_request(f"container {request.container} is not valid for pod {name}")
        if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            raise errors.bad_request(
                f"cannot {request.verb} in a completed pod; current phase is "
                f"{pod['status']['phase']}"
            )


def _ports(query: Query) -> tuple[int, ...]:
    words = [word for text in query.repeated.get("ports", ()) for word in text.split(",")]
    if not words:
        raise errors.bad_request("portforward needs ports: ?ports=8080")
    if len(words) > MAX_PORTS:
        raise errors.bad_request(f"portforward: {len(words)} ports; at most {MAX_PORTS} at once")
    ports = tuple(int(word) if word.isdigit() else 0 for word in words)
    for port, word in zip(ports, words, strict=True):
        if not 0 < port < 65536:
            raise errors.bad_request(f"portforward: {word!r} is not a port")
    return ports


async def refuse(send: Send, error: errors.StatusError) -> None:
    """Answer an upgrade request with a plain HTTP response."""
    body = msgspec.json.encode(error.body())
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "websocket.http.response.start", "status": error.code, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})

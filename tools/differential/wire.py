"""HTTP requests over a plain socket, without a client library.

Note: a library would hide what is compared (headers, unusual bodies, wrong content types), and
would retry.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import yaml

TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    warnings: tuple[str, ...]
    body: bytes

    @property
    def content(self) -> Any:
        """Return the body as JSON, or as text."""
        try:
            return json.loads(self.body)
        except ValueError:
            return self.body.decode(errors="replace")


@dataclass
class Peer:
    """A server with a bearer token, and the last response for each object."""

    kubeconfig: Path
    objects: dict[str, Any] = field(default_factory=dict)
    """The last version seen of each object, by path."""
    older: dict[str, Any] = field(default_factory=dict)
    """The version before that."""
    tokens: dict[str, str] = field(default_factory=dict)
    """Continue tokens, by path."""

    def __post_init__(self) -> None:
        config = yaml.safe_load(self.kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        address = urlsplit(cluster["server"])
        self._authority = cluster.get("certificate-authority-data", "")
        self._host, self._port = address.hostname or "", address.port or 443
        self._token = user["token"]
        self._connection: http.client.HTTPSConnection | None = None

    def _connect(self) -> http.client.HTTPSConnection:
        context = ssl._create_unverified_context()  # a local test server
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=TIMEOUT_S, context=context
        )

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Answer:
        target = f"{path}?{urlencode(query)}" if query else path
        sent = {"Authorization": f"Bearer {self._token}", **(headers or {})}
        for fresh in (False, True):
            if self._connection is None or fresh:
                self._connection = self._connect()
            try:
                self._connection.request(method, target, body, sent)
                response = self._connection.getresponse()
                content = response.read()
                break
            except (http.client.HTTPException, OSError):
                self._connection.close()
                if fresh:
                    raise
        named = response.headers
        return Answer(
            response.status,
            {key.lower(): value for key, value in named.items()},
            tuple(named.get_all("Warning") or ()),
            content,
        )

    def watch(
        self, path: str, query: Mapping[str, str], is_last: Callable[[Any], bool]
    ) -> list[Any]:
        """Return events up to the last expected one, then drop the connection."""
        connection = self._connect()
        target = f"{path}?{urlencode({**query, 'watch': 'true', 'timeoutSeconds': '20'})}"
        events: list[Any] = []
        with contextlib.closing(connection):
            connection.request("GET", target, headers={"Authorization": f"Bearer {self._token}"})
            response = connection.getresponse()
            for line in response:
                events.append(json.loads(line))
                if is_last(events[-1]):
                    break
        return events

    def remember(self, path: str, obj: Any) -> None:
        if path in self.objects:
            self.older[path] = self.objects[path]
        self.objects[path] = obj

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

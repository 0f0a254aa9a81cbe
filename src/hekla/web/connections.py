"""Limits on the connections of a server: silent, idle and slow clients do not lock others out.

A connection is *pending* until its first request has arrived, *idle* between requests, *active*
during one, and *unread* while its client does not take what is sent. If a limit is reached, the
oldest pending or idle connection is closed for the new one: an honest client needs milliseconds to
send a request, so closing the oldest finds the silent ones.

Note: on one machine all users have the address 127.0.0.1. So loopback has no limit per address.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import resource
import socket
from collections import Counter
from dataclasses import dataclass
from typing import Final, Protocol

log = logging.getLogger("hekla.web")

RESERVED_FILES: Final = 512
"""File descriptors that connections leave to the rest of the process."""


@dataclass(frozen=True)
class ConnectionLimits:
    """How many connections a server has, and what they may hold."""

    total: int = 16_384
    """Lowered to what the limit of open files allows."""
    per_address: int = 2_048
    """From one address other than loopback."""
    pending: int = 512
    """In the TLS handshake, or without a request yet."""
    handshake_s: float = 10.0
    unread_s: float = 60.0
    """A client that takes nothing for so long is cut. A watch then starts again with a list."""
    unread_bytes: int = 256 << 20
    """Unsent bytes of all unread connections; beyond, the one that is unread longest is cut."""


class Connection(Protocol):
    """A connection after the handshake."""

    def abort(self) -> None: ...


class Connections:
    """The connections of one server. Runs on one event loop."""

    def __init__(self, limits: ConnectionLimits | None = None) -> None:
        self.limits = limits or ConnectionLimits()
        self.open = 0
        self.dropped = 0
        """Pending and idle connections closed for new ones."""
        self.refused = 0
        self.cut = 0
        """Clients cut because they did not read."""
        self.unread_bytes = 0
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        allowed = max(files - RESERVED_FILES, files // 2)
        self._total = min(self.limits.total, allowed)
        self._addresses: Counter[str] = Counter()
        # Dicts keep the order of insertion: the first is the oldest.
        self._handshakes: dict[socket.socket, None] = {}
        self._pending: dict[Connection, None] = {}
        self._idle: dict[Connection, None] = {}
        self._unread: dict[Connection, tuple[int, asyncio.TimerHandle]] = {}

    def admit(self, accepted: socket.socket, address: str) -> bool:
        """Count a new connection, which begins its handshake; False if there is no room."""
        if not _is_loopback(address) and self._addresses[address] >= self.limits.per_address:
            self.refused += 1
            return False
        if len(self._handshakes) + len(self._pending) >= self.limits.pending:
            self.make_room()
        if self.open >= self._total and not self.make_room():
            self.refused += 1
            return False
        self.open += 1
        self._addresses[address] += 1
        self._handshakes[accepted] = None
        return True

    def end_handshake(self, accepted: socket.socket) -> None:
        self._handshakes.pop(accepted, None)

    def make_room(self) -> bool:
        """Close the oldest connection that does nothing; False if there is none."""
        if self._handshakes:
            accepted = next(iter(self._handshakes))
            del self._handshakes[accepted]
            with contextlib.suppress(OSError):  # the client may have been faster
                accepted.shutdown(socket.SHUT_RDWR)  # the handshake fails, and releases it
        elif doing_nothing := self._pending or self._idle:
            oldest = next(iter(doing_nothing))
            del doing_nothing[oldest]
            oldest.abort()
        else:
            return False
        self.dropped += 1
        return True

    def release(self, address: str) -> None:
        """Forget a connection that has ended."""
        self.open -= 1
        self._addresses[address] -= 1
        if not self._addresses[address]:
            del self._addresses[address]

    # States

    def made(self, connection: Connection) -> None:
        self._pending[connection] = None

    def active(self, connection: Connection) -> None:
        self._pending.pop(connection, None)
        self._idle.pop(connection, None)

    def idle(self, connection: Connection) -> None:
        self._idle[connection] = None

    def lost(self, connection: Connection) -> None:
        self.active(connection)
        self.read(connection)

    def unread(self, connection: Connection, size: int) -> None:
        """The client does not take what is sent, and `size` bytes wait."""
        self.read(connection)
        timer = asyncio.get_running_loop().call_later(
            self.limits.unread_s, self._cut, connection, "took nothing for too long"
        )
        self._unread[connection] = size, timer
        self.unread_bytes += size
        while self.unread_bytes > self.limits.unread_bytes and self._unread:
            self._cut(next(iter(self._unread)), "all unread connections hold too many bytes")

    def read(self, connection: Connection) -> None:
        """The client reads again."""
        held = self._unread.pop(connection, None)
        if held is not None:
            size, timer = held
            timer.cancel()
            self.unread_bytes -= size

    def _cut(self, connection: Connection, why: str) -> None:
        held = self._unread.get(connection)
        self.read(connection)
        self.cut += 1
        log.warning(
            "cut %s, which did not read %d bytes: %s", connection, held[0] if held else 0, why
        )
        connection.abort()


def raise_file_limit(most: int = 65_536) -> None:
    """Allow this process as many open files as the system lets it, up to `most`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most if hard == resource.RLIM_INFINITY else min(hard, most)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False

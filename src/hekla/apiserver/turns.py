"""Whose request is next: one client that floods does not keep the others waiting.

Every request that is worked on holds a seat. While there are free seats nobody waits, and taking
one costs a dictionary look-up. When there are none, requests wait in a queue for each client, and a
seat that becomes free goes to the clients in turn. Whoever has too many requests under way and
waiting is answered 429 with `Retry-After`, as upstream does.

A client is a user and the program it says it runs (its user agent, sorted into a few buckets, so
that inventing names gains little): on one machine most programs act as the same administrator. A
stranger is known by its address. The cluster's own parts talk to the server within the process
and never wait. Endless answers (watch, log, exec) hold no seat and have bounds of their own.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from hekla.apiserver import errors
from hekla.apiserver.authn import ANONYMOUS, User

BUCKETS: Final = 16
Client = tuple[str, int]
"""The name of a user, or the address of a stranger; and the bucket of its program."""


@dataclass(frozen=True)
class Bounds:
    """How much may be under way."""

    seats: int = 400
    """Requests worked on at once."""
    seats_each: int = 300
    """The same for one client: the rest is always there for others."""
    waiting: int = 4000
    waiting_each: int = 1000
    streams: int = 8192
    """Watches, logs and sessions that are open."""
    streams_each: int = 2048


class Turns:
    """Seats and queues. Everything happens on one event loop."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self.bounds = bounds or Bounds()
        self.taken = 0
        self.waiting = 0
        self.streams = 0
        self.refused = 0
        self._seats: dict[Client, int] = {}
        self._queues: OrderedDict[Client, deque[asyncio.Future[None]]] = OrderedDict()
        self._open: dict[Client, int] = {}

    @staticmethod
    def client(user: User, agent: str, source: str) -> Client:
        name = source if user is ANONYMOUS else user.name
        return name, crc32(agent.encode("utf-8", "replace")) % BUCKETS

    # Seats

    def take(self, client: Client) -> bool:
        """A seat at once, if there is one for this client; else `wait` for it."""
        held = self._seats.get(client, 0)
        if self.taken >= self.bounds.seats or held >= self.bounds.seats_each:
            return False
        if client in self._queues:
            return False  # its earlier requests come first
        self.taken += 1
        self._seats[client] = held + 1
        return True

    async def wait(self, client: Client) -> None:
        """Until it is this client's turn; 429 when too many wait already."""
        queue = self._queues.get(client)
        length = 0 if queue is None else len(queue)
        if self.waiting >= self.bounds.waiting or length >= self.bounds.waiting_each:
            self.refused += 1
            raise errors.too_many_requests("too many requests, please try again later")
        if queue is None:
            queue = self._queues[client] = deque()
        turn = asyncio.get_running_loop().create_future()
        queue.append(turn)
        self.waiting += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(client)  # we were given a seat and are gone
            else:
                self._forget(client, turn)
            raise

    def leave(self, client: Client) -> None:
        """Give a seat back; it goes to whoever's turn it is."""
        self.taken -= 1
        held = self._seats[client] - 1
        if held:
            self._seats[client] = held
        else:
            del self._seats[client]
        if self.waiting:
            self._hand_on()

    def _hand_on(self) -> None:
        """Go round the clients that wait; one that has all its seats is passed over."""
        passed = 0
        while passed < len(self._queues) and self.taken < self.bounds.seats:
            client, queue = next(iter(self._queues.items()))
            self._queues.move_to_end(client)
            if self._seats.get(client, 0) >= self.bounds.seats_each:
                passed += 1
                continue
            turn = queue.popleft()
            self.waiting -= 1
            if not queue:
                del self._queues[client]
            if not turn.cancelled():  # else its request was given up, and does not know yet
                self.taken += 1
                self._seats[client] = self._seats.get(client, 0) + 1
                turn.set_result(None)

    def _forget(self, client: Client, turn: asyncio.Future[None]) -> None:
        queue = self._queues.get(client)
        if queue is None or turn not in queue:
            return  # passed over already
        queue.remove(turn)
        self.waiting -= 1
        if not queue:
            del self._queues[client]

    # Streams

    def open(self, client: Client) -> None:
        """An endless answer begins; 429 when there are too many."""
        held = self._open.get(client, 0)
        if self.streams >= self.bounds.streams or held >= self.bounds.streams_each:
            self.refused += 1
            raise errors.too_many_requests("too many watches and sessions are open; end some first")
        self.streams += 1
        self._open[client] = held + 1

    def close(self, client: Client) -> None:
        self.streams -= 1
        held = self._open[client] - 1
        if held:
            self._open[client] = held
        else:
            del self._open[client]

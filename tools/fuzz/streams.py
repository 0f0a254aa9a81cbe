"""Fuzz the socket: random bytes, partial requests, broken frames; with and without TLS.

The server may close the connection or send any response. Afterwards it must work as before, and
must have released the memory of the connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from random import Random

from hekla.apiserver.server import ApiServer
from tools.fuzz.mutate import mutate_bytes

READ_S = 0.05
TOGETHER = 16
OPENINGS = (
    b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /api/v1/namespaces/default/pods HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{}",
    b"POST /api HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"GET /api/v1/namespaces/default/pods/p/exec?command=ls HTTP/1.1\r\nHost: x\r\n"
    b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n\x81\x85abcdhello",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40),
    b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n",
)


async def run(server: ApiServer, connections: int, seed: int) -> int:
    """Open connections with malformed data; return their number."""
    ca = (server.config.data_dir / "pki" / "ca.crt").read_text()
    trusted = ssl.create_default_context(cadata=ca)
    left = connections

    async def work(random: Random) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await _one(server.port, trusted if random.random() < 0.7 else None, random)

    await asyncio.gather(*(work(Random(f"{seed}/{n}")) for n in range(TOGETHER)))
    return connections


async def _one(port: int, context: ssl.SSLContext | None, random: Random) -> None:
    with contextlib.suppress(OSError, ssl.SSLError, asyncio.IncompleteReadError, TimeoutError):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname="localhost" if context else None
        )
        try:
            for _ in range(random.choice((1, 1, 2, 3))):
                data = random.choice(OPENINGS)
                if random.random() < 0.8:
                    data = mutate_bytes(data, random)
                if random.random() < 0.2:
                    data = random.randbytes(random.choice((1, 100, 5000)))
                writer.write(data[: random.randrange(len(data) + 1)])
                await writer.drain()
                async with asyncio.timeout(READ_S):
                    await reader.read(4096)
        finally:
            if random.random() < 0.5:
                writer.transport.abort()
            else:
                writer.close()
            with contextlib.suppress(OSError, ssl.SSLError, TimeoutError):
                async with asyncio.timeout(1):
                    await writer.wait_closed()

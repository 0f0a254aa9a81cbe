"""`python -m tools.kube.forward FD HOST PORT`: forward connections into another network namespace.

The listening socket is inherited, and belongs to the namespace it was made in. Connections are made
from the namespace of this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys

_CHUNK = 1 << 16


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(_CHUNK):
            target.write(data)
            await target.drain()
        target.write_eof()


async def serve(listening: socket.socket, host: str, port: int) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, onward = await asyncio.open_connection(host, port)
        except OSError:
            writer.close()
            return
        try:
            await asyncio.gather(_copy(reader, onward), _copy(there, writer))
        finally:
            onward.close()
            writer.close()

    server = await asyncio.start_server(handle, sock=listening)
    await server.serve_forever()


if __name__ == "__main__":
    descriptor, to_host, to_port = sys.argv[1:]
    asyncio.run(serve(socket.socket(fileno=int(descriptor)), to_host, int(to_port)))

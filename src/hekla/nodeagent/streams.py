"""Streams between a client and a pod: exec, attach and portforward."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import struct
import termios
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from hekla.units.objects import Object

STDIN, STDOUT, STDERR, RESIZE, CLOSE = 0, 1, 2, 4, 255
CHUNK = 32 * 1024
MAX_CHUNKS_AHEAD = 64


async def run_stream(
    line: list[str], variables: dict[str, str], request: Any, channels: Any
) -> Object:
    """Run a command to its end; return the Status with its exit code."""
    try:
        if request.tty:
            code = await _with_terminal(line, variables, channels)
        else:
            code = await _with_pipes(line, variables, request, channels)
    except FileNotFoundError as error:
        return _ended(127, f"command not found: {error.filename}")
    return _ended(code)


async def _with_pipes(
    line: list[str], variables: dict[str, str], request: Any, channels: Any
) -> int:
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    child = await asyncio.create_subprocess_exec(
        *line,
        env=variables,
        stdin=pipe if request.stdin else null,
        stdout=pipe if request.stdout else null,
        stderr=pipe if request.stderr else null,
        start_new_session=True,
    )

    async def carry(reader: asyncio.StreamReader | None, channel: int) -> None:
        while reader is not None and (data := await reader.read(CHUNK)):
            await channels.send(channel, data)

    feeding = asyncio.create_task(_feed(child, channels))
    try:
        await asyncio.gather(carry(child.stdout, STDOUT), carry(child.stderr, STDERR))
        return await child.wait()
    finally:
        feeding.cancel()
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()


async def _feed(child: asyncio.subprocess.Process, channels: Any) -> None:
    """Pass on the client's input; kill the command when the client disconnects."""
    while (piece := await channels.receive()) is not None:
        channel, data = piece
        if child.stdin is None:
            continue
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            if channel == STDIN:
                child.stdin.write(data)
                await child.stdin.drain()
            elif channel == CLOSE and data[:1] == b"\0":
                child.stdin.close()
    with contextlib.suppress(ProcessLookupError):
        child.kill()


async def _with_terminal(line: list[str], variables: dict[str, str], channels: Any) -> int:
    controller, terminal = pty.openpty()
    try:
        child = await asyncio.create_subprocess_exec(
            *line,
            env={"TERM": "xterm", **variables},
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,  # the command line makes the terminal that of the session
        )
    finally:
        os.close(terminal)
    feeding = asyncio.create_task(_feed_terminal(child, controller, channels))
    try:
        async with aclosing(_read_terminal(controller)) as output:
            async for data in output:
                await channels.send(STDOUT, data)
        return await child.wait()
    finally:
        feeding.cancel()
        os.close(controller)
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()


async def _read_terminal(controller: int) -> AsyncGenerator[bytes, None]:
    """Yield the output of a terminal, and read no more than a bounded queue ahead."""
    loop = asyncio.get_running_loop()
    output: asyncio.Queue[bytes] = asyncio.Queue(MAX_CHUNKS_AHEAD)

    def on_readable() -> None:
        try:
            data = os.read(controller, CHUNK)
        except OSError:
            data = b""
        output.put_nowait(data)
        if not data or output.full():
            loop.remove_reader(controller)

    loop.add_reader(controller, on_readable)
    try:
        while data := await output.get():
            yield data
            if output.empty():
                loop.add_reader(controller, on_readable)
    finally:
        loop.remove_reader(controller)


async def _feed_terminal(child: asyncio.subprocess.Process, controller: int, channels: Any) -> None:
    """Pass on the client's input and window size; kill the command when the client disconnects."""
    while (piece := await channels.receive()) is not None:
        channel, data = piece
        if channel == STDIN:
            os.write(controller, data)
        elif channel == RESIZE:
            _resize(controller, data)
    with contextlib.suppress(ProcessLookupError):
        child.kill()


async def forward_ports(hosts: Sequence[str], ports: Sequence[int], channels: Any) -> None:
    """Forward ports of a pod, at the first of `hosts` that accepts, until the client disconnects.

    Port number i has channel 2i for data and 2i + 1 for errors.
    """
    writers: dict[int, asyncio.StreamWriter] = {}
    for index, port in enumerate(ports):
        for channel in (2 * index, 2 * index + 1):
            await channels.send(channel, struct.pack("<H", port))
    async with contextlib.AsyncExitStack() as stack:
        for index, port in enumerate(ports):
            try:
                reader, writers[2 * index] = await _connect(hosts, port)
            except OSError as error:
                message = f"cannot connect to port {port} of the pod: {error.strerror or error}"
                await channels.send(2 * index + 1, message.encode())
                continue
            carrying = asyncio.create_task(_carry_back(reader, 2 * index, channels))
            stack.callback(carrying.cancel)
            stack.callback(writers[2 * index].close)
        while (piece := await channels.receive()) is not None:
            channel, data = piece
            if channel in writers:
                with contextlib.suppress(ConnectionError):
                    writers[channel].write(data)
                    await writers[channel].drain()


async def _connect(
    hosts: Sequence[str], port: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    for host in hosts[:-1]:
        with contextlib.suppress(OSError):
            return await asyncio.open_connection(host, port)
    return await asyncio.open_connection(hosts[-1], port)


async def _carry_back(reader: asyncio.StreamReader, channel: int, channels: Any) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(CHUNK):
            await channels.send(channel, data)


async def feed_pipe(descriptor: int, channels: Any) -> None:
    """Write the client's input into a pipe, as fast as it is read, until the input ends."""
    loop = asyncio.get_running_loop()
    while (piece := await channels.receive()) is not None:
        channel, data = piece
        if channel == CLOSE and data[:1] == b"\0":
            return
        while channel == STDIN and data:
            try:
                data = data[os.write(descriptor, data) :]
            except BlockingIOError:
                writable: asyncio.Future[None] = loop.create_future()
                loop.add_writer(descriptor, writable.set_result, None)
                try:
                    await writable
                finally:
                    loop.remove_writer(descriptor)
            except OSError:
                return  # the reader has closed the pipe


def _resize(descriptor: int, data: bytes) -> None:
    with contextlib.suppress(msgspec.DecodeError, KeyError, TypeError, struct.error, OSError):
        size = msgspec.json.decode(data)
        packed = struct.pack("HHHH", size["Height"], size["Width"], 0, 0)
        fcntl.ioctl(descriptor, termios.TIOCSWINSZ, packed)


def _ended(code: int, message: str = "") -> Object:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    code = code if code > 0 else 128 - code
    return {
        "metadata": {},
        "status": "Failure",
        "message": message or f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }

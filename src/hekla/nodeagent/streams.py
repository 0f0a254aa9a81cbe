"""A command inside a pod, its input and output carried over channels; with or without a tty."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import struct
import termios
from typing import Any

import msgspec

Object = dict[str, Any]
STDIN, STDOUT, STDERR, RESIZE, CLOSE = 0, 1, 2, 4, 255
CHUNK = 32 * 1024


async def run_stream(
    line: list[str], variables: dict[str, str], request: Any, channels: Any
) -> Object:
    """Run a command to its end; the Status that tells kubectl its exit code."""
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
    """Input from the client; when the client goes, so does the command."""
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
    ours, theirs = pty.openpty()
    loop = asyncio.get_running_loop()
    output: asyncio.Queue[bytes] = asyncio.Queue(64)
    try:
        child = await asyncio.create_subprocess_exec(
            *line,
            env={"TERM": "xterm", **variables},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
    finally:
        os.close(theirs)

    def readable() -> None:
        try:
            data = os.read(ours, CHUNK)
        except OSError:
            data = b""
        if not data or output.full():
            loop.remove_reader(ours)
        output.put_nowait(data)

    async def carry() -> None:
        while data := await output.get():
            await channels.send(STDOUT, data)
            if output.empty():
                loop.add_reader(ours, readable)

    async def feed() -> None:
        while (piece := await channels.receive()) is not None:
            channel, data = piece
            if channel == STDIN:
                os.write(ours, data)
            elif channel == RESIZE:
                _resize(ours, data)
        with contextlib.suppress(ProcessLookupError):
            child.kill()

    loop.add_reader(ours, readable)
    feeding = asyncio.create_task(feed())
    try:
        await carry()
        return await child.wait()
    finally:
        feeding.cancel()
        loop.remove_reader(ours)
        os.close(ours)
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


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

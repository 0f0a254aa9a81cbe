"""HTTP responses, byte for byte, over real sockets."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from hekla.kube import calls, errors
from hekla.kube.client import Client
from hekla.kube.credentials import Auth, FixedCredentials
from hekla.kube.http1 import PAUSE_ABOVE_BYTES
from hekla.kube.kubeconfig import ClusterConfig
from hekla.kube.retries import NO_RETRIES

READY = calls.other("GET", "/readyz")
Connected = list[asyncio.StreamWriter]


@asynccontextmanager
async def speaking(*answers: bytes, ends: bool = False) -> AsyncIterator[tuple[str, Connected]]:
    """A server that sends these bytes, one element per request."""
    script, connected = list(answers), Connected()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.append(writer)
        while script and await reader.readuntil(b"\r\n\r\n"):
            writer.write(script.pop(0))
            await writer.drain()
            if ends:
                break
        if ends:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", connected
    finally:
        server.close()
        for writer in connected:
            writer.close()


def talking_to(url: str, **more: object) -> Client:
    config = ClusterConfig(server=url, credentials=FixedCredentials(Auth()))
    return Client(config, retry=NO_RETRIES, **more)  # type: ignore[arg-type]


def sized(body: bytes, *headers: bytes) -> bytes:
    lines = [b"HTTP/1.1 200 OK", b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\no\xc3\r\n1\r\nk\r\n0\r\n\r\n"
GOOD: dict[str, tuple[bytes, bytes]] = {
    "of known length": (sized(b"ok"), b"ok"),
    "empty": (sized(b""), b""),
    "in chunks": (CHUNKED, b"o\xc3k"),
    "packed": (sized(gzip.compress(b"ok" * 900), b"Content-Encoding: gzip"), b"ok" * 900),
    "after 100 Continue": (b"HTTP/1.1 100 Continue\r\n\r\n" + sized(b"ok"), b"ok"),
    "with no content": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
}


@pytest.mark.parametrize("case", GOOD)
async def test_connection_is_reused_after_a_response(case: str) -> None:
    answer, want_body = GOOD[case]
    async with speaking(answer, sized(b"next")) as (url, connected), talking_to(url) as client:
        assert await client.call(READY) == want_body
        assert await client.call(READY) == b"next"
        assert len(connected) == 1


async def test_response_without_length_ends_with_its_connection() -> None:
    answer = b"HTTP/1.1 200 OK\r\n\r\nto the end"
    async with speaking(answer, ends=True) as (url, _), talking_to(url) as client:
        assert await client.call(READY) == b"to the end"


async def test_connection_close_opens_a_new_connection() -> None:
    answer = sized(b"ok", b"Connection: close")
    async with speaking(answer, answer) as (url, connected), talking_to(url) as client:
        assert [await client.call(READY) for _ in range(2)] == [b"ok", b"ok"]
        assert len(connected) == 2


BAD: dict[str, tuple[bytes, type[errors.KubeError]]] = {
    "truncated in its body": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
        errors.ConnectionLost,
    ),
    "truncated in its chunks": (CHUNKED[:-7], errors.ConnectionLost),
    "truncated in its head": (b"HTTP/1.1 200 OK\r\nContent-", errors.ConnectionLost),
    "of another protocol": (b"220 smtp.example ESMTP\r\n", errors.ProtocolError),
    "with an unknown content encoding": (
        sized(b"ok", b"Content-Encoding: br"),
        errors.ProtocolError,
    ),
    "with a corrupt content encoding": (
        sized(b"not gzip", b"Content-Encoding: gzip"),
        errors.ProtocolError,
    ),
    "with endless headers": (
        b"HTTP/1.1 200 OK\r\n" + b"X-Pad: " + b"x" * 300_000 + b"\r\n\r\n",
        errors.ProtocolError,
    ),
}


@pytest.mark.parametrize("case", BAD)
async def test_malformed_response_raises_and_closes_the_connection(case: str) -> None:
    answer, want_error = BAD[case]
    async with speaking(answer, ends=True) as (url, _), talking_to(url) as client:
        with pytest.raises(want_error):
            await client.call(READY)


async def test_unexpected_second_response_is_not_used_for_the_next_request() -> None:
    async with (
        speaking(sized(b"mine") + sized(b"stray"), sized(b"yours")) as (url, connected),
        talking_to(url) as client,
    ):
        assert await client.call(READY) == b"mine"
        assert await client.call(READY) == b"yours"
        assert len(connected) == 2


async def test_unread_stream_pauses_reading() -> None:
    """The client's buffer is bounded; the kernel's socket buffers are not counted."""
    asked, total = asyncio.Event(), 40 * PAUSE_ABOVE_BYTES
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total)
        asked.set()
        while sent < total:
            writer.write(b"x" * PAUSE_ABOVE_BYTES)
            await writer.drain()
            sent += PAUSE_ABOVE_BYTES
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with talking_to(url) as client, client.transport.stream(READY) as chunks:
        await asked.wait()
        before = -1
        while sent != before:  # until nothing more is sent
            before = sent
            for _ in range(200):
                await asyncio.sleep(0)
        assert sent < total
        size = 0
        async for chunk in chunks:
            size += len(chunk)
        assert size == total
    server.close()


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\n", "ä"])
async def test_credential_cannot_inject_headers(value: str) -> None:
    auth = Auth(headers=(("Authorization", f"Bearer {value}"),))
    async with speaking(sized(b"ok")) as (url, connected):
        config = ClusterConfig(server=url, credentials=FixedCredentials(auth))
        async with Client(config) as client:
            with pytest.raises(errors.ConfigError) as caught:
                await client.call(READY)
        assert value not in str(caught.value)
        assert connected == []

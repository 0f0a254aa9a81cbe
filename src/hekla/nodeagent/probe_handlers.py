"""One attempt of a startup, liveness or readiness probe."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable
from urllib.parse import quote

from hekla.units.objects import Object

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
_PATH_CHARACTERS = "/%?=&+:;,@!$'()*~[]-._"

Exec = Callable[[list[str]], Awaitable[int]]


async def check(probe: Object, host: str, ports: dict[str, int], execute: Exec) -> bool:
    """Return whether a probe succeeds; any error or timeout is a failure."""
    try:
        async with asyncio.timeout(probe.get("timeoutSeconds") or 1):
            if "exec" in probe:
                return await execute(probe["exec"]["command"]) == 0
            if "httpGet" in probe:
                return await _http(probe["httpGet"], host, ports)
            if "tcpSocket" in probe:
                action = probe["tcpSocket"]
                return await _tcp(action.get("host") or host, _port(action["port"], ports))
    except (TimeoutError, OSError, ValueError, KeyError, asyncio.IncompleteReadError):
        return False
    return False


def _port(port: int | str, ports: dict[str, int]) -> int:
    return port if isinstance(port, int) else ports.get(port) or int(port)


async def _tcp(host: str, port: int) -> bool:
    _, writer = await asyncio.open_connection(host, port)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


def _request(action: Object, host: str) -> bytes:
    """Return the GET request of a probe. No field of the probe can add lines to it."""
    headers = {str(h["name"]): str(h["value"]) for h in action.get("httpHeaders") or ()}
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise ValueError(f"header {name!r} of the probe is invalid")
    path = quote(action.get("path") or "/", safe=_PATH_CHARACTERS)
    lines = [f"GET {path} HTTP/1.1", f"Host: {headers.pop('Host', host)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += ["User-Agent: hekla-probe", "Connection: close", "", ""]
    return "\r\n".join(lines).encode()


async def _http(action: Object, host: str, ports: dict[str, int]) -> bool:
    """Return whether a GET is answered with status 200 to 399."""
    host = action.get("host") or host
    secure = None
    if str(action.get("scheme", "HTTP")).upper() == "HTTPS":
        import ssl

        secure = ssl.create_default_context()
        # As in the kubelet, the certificate is not verified.
        secure.check_hostname, secure.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(host, _port(action["port"], ports), ssl=secure)
    try:
        writer.write(_request(action, host))
        await writer.drain()
        status = (await reader.readuntil(b"\n")).split()
        return 200 <= int(status[1]) < 400
    finally:
        writer.close()

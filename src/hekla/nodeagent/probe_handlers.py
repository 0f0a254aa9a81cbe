"""One attempt of a startup, liveness or readiness probe."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from hekla.units.objects import Object

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
        headers = {h["name"]: h["value"] for h in action.get("httpHeaders") or ()}
        lines = [f"GET {action.get('path') or '/'} HTTP/1.1", f"Host: {headers.pop('Host', host)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += ["User-Agent: hekla-probe", "Connection: close", "", ""]
        writer.write("\r\n".join(lines).encode())
        await writer.drain()
        status = (await reader.readuntil(b"\n")).split()
        return 200 <= int(status[1]) < 400
    finally:
        writer.close()

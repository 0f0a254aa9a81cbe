"""HTTP and TCP probes of pods for JobFlows."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from hekla.controllers.jobflow.flow import Probe

TIMEOUT_S: Final = 1.0
_PRINTABLE: Final = frozenset(map(chr, range(0x20, 0x7F)))


async def probe_succeeds(probe: Probe, address: str) -> bool:
    """Return whether the probe succeeds at an address; never raises."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection(address, probe.port)
            try:
                if probe.kind == "tcp":
                    return True
                writer.write(_request(probe, address))
                await writer.drain()
                return _is_good(await reader.readline())
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except (OSError, TimeoutError, ValueError):
        return False


def _request(probe: Probe, address: str) -> bytes:
    path = probe.path if probe.path.startswith("/") else f"/{probe.path}"
    lines = [f"GET {path} HTTP/1.1", f"Host: {address}:{probe.port}", "Connection: close"]
    if probe.header is not None:
        lines.append(f"{probe.header[0]}: {probe.header[1]}")
    if not all(set(line) <= _PRINTABLE for line in lines):
        raise ValueError("a probe's path or header contains invalid characters")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _is_good(status_line: bytes) -> bool:
    """Return whether the status is 200 to 399, as in the kubelet."""
    parts = status_line.split()
    return len(parts) >= 2 and parts[1].isdigit() and 200 <= int(parts[1]) < 400

"""Following the output of a run across a restart of the server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from hekla.kube.client import Client
from hekla.kube.errors import TransportError
from hekla.sdk import outages
from hekla.sdk.async_handle import LogReaders
from hekla.sdk.outages import Outage

POD = {
    "metadata": {"name": "p", "namespace": "default", "uid": "u"},
    "spec": {"containers": [{"name": "c"}]},
    "status": {
        "phase": "Running",
        "containerStatuses": [{"name": "c", "restartCount": 0, "state": {"running": {}}}],
    },
}


class Server:
    """Serves a log; its connections are lost after so many bytes."""

    def __init__(self, log: bytes, lost_after: list[int]) -> None:
        self._log = log
        self._lost_after = lost_after

    @asynccontextmanager
    async def logs(self, pod: str, **options: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        yield self._chunks()

    async def _chunks(self) -> AsyncIterator[bytes]:
        if not self._lost_after:
            yield self._log
            return
        sent = self._lost_after.pop(0)
        if sent:
            yield self._log[:sent]
        raise TransportError("the connection was lost")


@pytest.mark.parametrize("lost_after", [[], [0], [6], [4, 0, 8], [13]])
async def test_each_line_is_read_once_whenever_the_connection_is_lost(
    lost_after: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outages, "RETRY_S", 0.0)
    server = Server(b"one\ntwo\nthree\nend", lost_after)
    lines: list[str] = []
    readers = LogReaders(
        cast(Client, server), lambda line: lines.append(line.text), from_the_start=True
    )
    readers.read_new_runs(POD)
    await readers.finish()
    assert lines == ["one", "two", "three", "end"]


def test_server_that_stays_away_is_an_error_in_the_end() -> None:
    now = [0.0]
    outage = Outage(now=lambda: now[0])
    error = TransportError("the connection was refused")
    for now[0] in (1.0, outages.MAX_S):
        assert outage.pause_s(error) > 0
    outage.reached()
    now[0] += 1
    assert outage.pause_s(error) > 0
    now[0] += outages.MAX_S + 1
    with pytest.raises(TransportError):
        outage.pause_s(error)

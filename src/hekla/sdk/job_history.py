"""The history of ended jobs, from the API server or from the controllers' port.

`since` is a time, or how long ago. A reader follows the pages of the server until it has `limit`
records.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from hekla.api import history as api
from hekla.api.history import JobRecord, from_list
from hekla.kube.calls import Call, path_of
from hekla.kube.client import Client
from hekla.kube.errors import NotFound
from hekla.kube.resources import resource
from hekla.kube.sync_client import SyncClient
from hekla.sdk import async_clients, job_phases
from hekla.sdk.handle import default_client
from hekla.units.timestamps import format_time

JOB_RECORDS = resource(api.API, api.PLURAL, kind=api.KIND, has_status=False)
DEFAULT_LIMIT = 1000
PAGE_SIZE = 500


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Which records are wanted; empty fields match all."""

    name: str = ""
    namespace: str | None = None
    """None means all namespaces."""
    user: str = ""
    queue: str = ""
    phase: str = ""
    since: datetime | None = None
    limit: int = DEFAULT_LIMIT

    def call(self, token: str = "", have: int = 0) -> Call:
        """Return the request of the page after `token`, with `have` records read so far."""
        given = {
            "name": self.name,
            "user": self.user,
            "queue": self.queue,
            "phase": self.phase,
            "since": format_time(self.since) if self.since is not None else "",
            "limit": str(min(PAGE_SIZE, self.limit - have)),
            "continue": token,
        }
        query = tuple((key, value) for key, value in given.items() if value)
        return Call("GET", path_of(JOB_RECORDS, self.namespace), query, idempotent=True)


class NoHistory(NotFound):
    """The server serves no job records."""


def no_history(error: NotFound, server: str) -> NotFound:
    """Return what a 404 of the list means: the server keeps no history."""
    message = (
        f"{server} serves no job records; a cluster of `hekla up` does, and on Kubernetes the "
        "controllers do with --history-file: name their address with --url"
    )
    return NoHistory(error.status, error.reason, message)


def read(client: SyncClient, request: Request) -> list[JobRecord]:
    """Return the records that are wanted, newest end first."""
    records: list[JobRecord] = []
    token = ""
    while len(records) < request.limit:
        try:
            body = client.call(request.call(token, len(records)))
        except NotFound as error:
            raise no_history(error, client.config.server) from error
        page, token = from_list(body)
        records += page
        if not token:
            break
    return records


def since_time(since: datetime | timedelta | None, now: datetime) -> datetime | None:
    """Return the earliest end that is wanted."""
    return now - since if isinstance(since, timedelta) else since


def history(
    name: str = "",
    *,
    namespace: str | None = None,
    all_namespaces: bool = False,
    user: str = "",
    queue: str = "",
    phase: str = "",
    since: datetime | timedelta | None = None,
    limit: int = DEFAULT_LIMIT,
    client: SyncClient | None = None,
) -> list[JobRecord]:
    """Return the records of ended jobs, newest end first; also of jobs that are deleted.

    Without a namespace, the one of the context. `phase` may name several: `Failed,Cancelled`.

    Example:
        for record in history(user="alice", phase="Failed", limit=10):
            print(record.name, record.exit_codes)
    """
    client = client or default_client()
    place = None if all_namespaces else namespace or client.config.namespace
    since = since_time(since, datetime.now(UTC))
    return read(
        client,
        Request(
            name=name,
            namespace=place,
            user=user,
            queue=queue,
            phase=",".join(job_phases.known_phases(phase, api.CANCELLED)),
            since=since,
            limit=limit,
        ),
    )


async def history_async(
    name: str = "", *, client: Client | None = None, **wanted: Any
) -> list[JobRecord]:
    """Return the records of ended jobs; the parameters are those of `history`.

    Example:
        for record in await history_async(user="alice", phase="Failed", limit=10):
            print(record.name, record.exit_codes)
    """
    config = (client or await async_clients.default_client()).config

    def read_all() -> list[JobRecord]:
        with SyncClient(config, component="sdk") as own:
            return history(name, client=own, **wanted)

    return await asyncio.to_thread(read_all)

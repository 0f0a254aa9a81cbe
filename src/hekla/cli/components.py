"""`hekla admission` and its kin: one component against any cluster."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable
from pathlib import Path

import click

from hekla.admission.service import AdmissionService
from hekla.admission.webhooks import Reach
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.errors import KubeError


def admission(
    config: Path | None, host: str, port: int, service: str | None, url: str | None
) -> None:
    if service and url:
        raise click.UsageError("--service and --url exclude each other")
    reach = Reach(url=url) if url else None
    if service:
        namespace, slash, name = service.partition("/")
        if not slash:
            raise click.UsageError("--service is NAMESPACE/NAME")
        reach = Reach(namespace=namespace, service=name)
    if reach is None and host in ("0.0.0.0", "::"):
        raise click.UsageError("give --service or --url: the API server must know where to call")

    async def serve() -> None:
        async with Client(kubeconfig.load(config), component="admission") as client:
            await AdmissionService(client, host=host, port=port, reach=reach).run()

    _run(serve())


def _run(work: Awaitable[None]) -> None:
    """Until it ends by itself, by Ctrl-C or by SIGTERM."""

    async def until_stopped() -> None:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        for name in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(name, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await task

    try:
        asyncio.run(until_stopped())
    except (KubeError, OSError) as error:
        raise click.ClickException(str(error)) from error

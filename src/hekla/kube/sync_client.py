"""The synchronous client of the command line: the same verbs over http.client, quick to import.

    with SyncClient(kubeconfig.load()) as client:
        for job in client.list(JOBS, namespace="ml"): ...

Timeouts apply to each wait on the socket, not to a whole request.

Note: this module imports neither asyncio nor numpy, directly or indirectly; a test checks it.
`vcctl job list` prints ten lines and must not import for half a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

from hekla.kube.kubeconfig import ClusterConfig
from hekla.kube.retries import RetryPolicy
from hekla.kube.sync_transport import MAX_BODY_BYTES, SyncTransport
from hekla.kube.sync_verbs import SyncVerbs, SyncWatch

__all__ = ["SyncClient", "SyncWatch"]


class SyncClient(SyncVerbs):
    """A client of one API server with one identity and one connection; not thread-safe."""

    def __init__(
        self,
        config: ClusterConfig,
        *,
        component: str = "cli",
        random: Random | None = None,
        retry: RetryPolicy | None = None,
        timeout_s: float = 30.0,
        max_body_bytes: int = MAX_BODY_BYTES,
        sleep: Callable[[float], None] = time.sleep,
        field_manager: str | None = None,
    ) -> None:
        self.config = config
        self.namespace = config.namespace
        self._field_manager = field_manager
        self.transport = SyncTransport(
            config,
            component=component,
            random=random,
            retry=retry,
            timeout_s=timeout_s,
            max_body_bytes=max_body_bytes,
            sleep=sleep,
        )

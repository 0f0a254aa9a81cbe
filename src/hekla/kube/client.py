"""The asynchronous Kubernetes client: every verb, on any kind.

    async with Client(kubeconfig.load(), component="scheduler") as client:
        pods = await client.list(PODS.into(Pod), label_selector="app=train")
        await client.bind("train-0", "node-7", namespace="ml")
        async with client.watch(PODS, resource_version=pods.resource_version) as events:
            async for event in events: ...

Errors are those of `hekla.kube.errors`, raised after the retries that are safe. Bodies may be
dicts, msgspec structs or encoded bytes; responses are decoded into the resource's type (see
`resources`).

Note: without a namespace, verbs on one object use the kubeconfig's namespace, and `list` and
`watch` use all namespaces. `delete_collection` requires one.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from hekla.kube.http1 import Dial
from hekla.kube.kubeconfig import ClusterConfig
from hekla.kube.retries import RetryPolicy
from hekla.kube.transport import MAX_BODY_BYTES, RateLimit, Transport
from hekla.kube.verbs import Verbs, Watch
from hekla.units.clock import Clock

__all__ = ["Client", "Watch"]


class Client(Verbs):
    """A client of one API server with one identity and one connection pool."""

    def __init__(
        self,
        config: ClusterConfig,
        *,
        component: str = "client",
        clock: Clock | None = None,
        random: Random | None = None,
        retry: RetryPolicy | None = None,
        timeout_s: float = 30.0,
        max_connections: int = 128,
        max_body_bytes: int = MAX_BODY_BYTES,
        rate_limit: RateLimit | None = None,
        fence: Callable[[], bool] | None = None,
        dial: Dial | None = None,
        field_manager: str | None = None,
    ) -> None:
        """Create a client.

        `fence` is called before each attempt to send a write; if it returns False, the write raises
        Fenced. Use `LeaderElector.is_leader`. `dial` opens connections to an in-process server.
        """
        self.config = config
        self.namespace = config.namespace
        self.transport = Transport(
            config,
            component=component,
            clock=clock,
            random=random,
            retry=retry,
            timeout_s=timeout_s,
            max_connections=max_connections,
            max_body_bytes=max_body_bytes,
            rate_limit=rate_limit,
            fence=fence,
            dial=dial,
        )
        self._field_manager = field_manager

    @property
    def clock(self) -> Clock:
        """The clock of back-off pauses."""
        return self.transport.clock

    @property
    def random(self) -> Random:
        """The random source of jitter."""
        return self.transport.random

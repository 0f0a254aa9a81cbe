"""The objects of a cluster that capacity is about, kept current by watches.

What the caller may not list in all namespaces is watched in one namespace; what the caller may not
list at all is hidden.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hekla.cli.capacity.usage import NodeInfo, PodUse, node_info, pod_use
from hekla.cli.rights import refusal_to_list
from hekla.kube.client import Client
from hekla.kube.errors import KubeError
from hekla.kube.informers import Informer
from hekla.kube.resources import NODES, PODS, Resource
from hekla.units.objects import Object

SYNC_PAUSE_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind that is watched, and the part of its objects that is kept."""

    resource: Resource[Object]
    keep: Callable[[Object], Any]


NODE_KIND: Final = Kind(NODES, node_info)
POD_KIND: Final = Kind(PODS, pod_use)


@dataclass(slots=True)
class Scope:
    """What the caller may not see, by plural."""

    hidden: dict[str, str] = field(default_factory=dict)
    """Why a kind is not shown at all, in the server's words."""
    partial: dict[str, str] = field(default_factory=dict)
    """The only namespace of which objects are shown."""

    def __str__(self) -> str:
        parts = [f"{', '.join(sorted(self.hidden))}: hidden"] if self.hidden else []
        for namespace in sorted(set(self.partial.values())):
            kinds = sorted(kind for kind, only in self.partial.items() if only == namespace)
            parts.append(f"{', '.join(kinds)}: only those of namespace {namespace}")
        return "; ".join(parts) + " (you may not list the others)" if parts else ""


@dataclass(slots=True)
class Watched:
    """The informers of a cluster by plural, and what the caller may not see."""

    informers: dict[str, Informer[Any]] = field(default_factory=dict)
    scope: Scope = field(default_factory=Scope)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def objects(self, kind: Kind) -> list[Any]:
        """Return the objects of a kind that the caller may see."""
        informer = self.informers.get(kind.resource.plural)
        return [] if informer is None else list(informer.list())

    def sees(self, kind: Kind) -> bool:
        """Return whether the caller may list a kind, in one namespace at least."""
        return kind.resource.plural in self.informers

    @property
    def nodes(self) -> list[NodeInfo]:
        return self.objects(NODE_KIND)

    @property
    def pods(self) -> list[PodUse]:
        return self.objects(POD_KIND)

    @property
    def problem(self) -> KubeError | None:
        """Why the state is not current; None while it follows the server."""
        problems = (informer.problem for informer in self.informers.values())
        return next((problem for problem in problems if problem is not None), None)

    async def synced(self) -> None:
        """Wait for the first lists; raise the problem of one that fails."""
        lists = [asyncio.ensure_future(one.synced()) for one in self.informers.values()]
        try:
            while lists and (await asyncio.wait(lists, timeout=SYNC_PAUSE_S))[1]:
                if (problem := self.problem) is not None:
                    raise problem
        finally:
            for one in lists:
                one.cancel()


@contextlib.asynccontextmanager
async def watch(client: Client, kinds: Sequence[Kind], namespace: str) -> AsyncIterator[Watched]:
    """Watch kinds in all namespaces, or in `namespace` where the caller may do no more."""
    watched = Watched()
    found = await asyncio.gather(*(_refusals(client, kind.resource, namespace) for kind in kinds))
    async with contextlib.AsyncExitStack() as stack:
        for kind, (everywhere, here) in zip(kinds, found, strict=True):
            plural = kind.resource.plural
            if everywhere and here:
                watched.scope.hidden[plural] = everywhere
                continue
            if everywhere:
                watched.scope.partial[plural] = namespace
            informer: Informer[Any] = Informer(
                client,
                kind.resource,
                dict,
                namespace=namespace if everywhere else None,
                transform=kind.keep,
            )
            informer.add_handler(lambda *_: watched.changed.set())
            watched.informers[plural] = await stack.enter_async_context(informer)
        await watched.synced()
        yield watched


async def _refusals(client: Client, resource: Resource[Any], namespace: str) -> tuple[str, str]:
    """Return why the caller may not list a kind everywhere, and not in a namespace either."""
    everywhere = await refusal_to_list(client, resource, None)
    if not everywhere or not resource.namespaced:
        return everywhere, everywhere
    return everywhere, await refusal_to_list(client, resource, namespace)

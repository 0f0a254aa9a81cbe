"""The objects of a cluster that capacity is about, kept current by watches.

What the caller may not list in all namespaces is watched in one namespace; what the caller may not
list at all is hidden. `hidden` says both, in the server's words.
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
class Watched:
    """The informers of a cluster by plural, and what the caller may not see."""

    informers: dict[str, Informer[Any]] = field(default_factory=dict)
    hidden: dict[str, str] = field(default_factory=dict)
    """By plural: why it is not shown, or not in all namespaces."""
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
    scopes = await asyncio.gather(*(_scope(client, kind.resource, namespace) for kind in kinds))
    async with contextlib.AsyncExitStack() as stack:
        for kind, (refusal, is_visible, where) in zip(kinds, scopes, strict=True):
            plural = kind.resource.plural
            if refusal:
                watched.hidden[plural] = refusal
            if not is_visible:
                continue
            informer: Informer[Any] = Informer(
                client, kind.resource, dict, namespace=where, transform=kind.keep
            )
            informer.add_handler(lambda *_: watched.changed.set())
            watched.informers[plural] = await stack.enter_async_context(informer)
        await watched.synced()
        yield watched


async def _scope(
    client: Client, resource: Resource[Any], namespace: str
) -> tuple[str, bool, str | None]:
    """Return why not all objects are visible, whether some are, and in which namespace."""
    refusal = await refusal_to_list(client, resource, None)
    if not refusal:
        return "", True, None
    if not resource.namespaced or await refusal_to_list(client, resource, namespace):
        return f"hidden: {refusal}", False, None
    return f"only those of namespace {namespace}: {refusal}", True, namespace

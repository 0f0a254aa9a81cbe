"""The synchronous client of the command line: the same verbs, over http.client, quick to import.

    with SyncClient(kubeconfig.load()) as client:
        for job in client.list(JOBS, namespace="ml"): ...

What a newcomer gets wrong: this module must not import asyncio or numpy, nor anything that
does; a test checks it. `vcctl job list` should not pay half a second to print ten lines.

Calls, answers, errors, credentials and retry rules are those of `client`; only the socket differs.
Time limits here bound each wait on the socket, not a whole request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from random import Random
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, cast

from hekla.kube import calls
from hekla.kube.answers import Listing, WatchEvent, WatchReader, decode, decode_list
from hekla.kube.calls import Body, Call, PatchKind, Propagation, Query
from hekla.kube.errors import Gone, NotFound
from hekla.kube.kubeconfig import ClusterConfig
from hekla.kube.resources import Obj, Resource
from hekla.kube.retries import RetryPolicy
from hekla.kube.sync_transport import MAX_BODY_BYTES, SyncStream, SyncTransport

T = TypeVar("T")

PAGE_SIZE = 500


class SyncClient:
    """One API server, one identity, one connection. Not for several threads at once."""

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
        self._transport = SyncTransport(
            config,
            component=component,
            random=random,
            retry=retry,
            timeout_s=timeout_s,
            max_body_bytes=max_body_bytes,
            sleep=sleep,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def call(self, call: Call) -> bytes:
        """Send any call; the answer as bytes."""
        return self._transport.send(call)

    def get(self, resource: Resource[T], name: str, *, namespace: str | None = None) -> T:
        """One object; NotFound if there is none."""
        call = calls.read(resource, name, namespace=self._in(resource, namespace))
        return self._decoded(resource, call)

    def find(self, resource: Resource[T], name: str, *, namespace: str | None = None) -> T | None:
        """One object, or None if there is none."""
        try:
            return self.get(resource, name, namespace=namespace)
        except NotFound:
            return None

    def list(
        self,
        resource: Resource[T],
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        page_size: int = PAGE_SIZE,
    ) -> Listing[T]:
        """Every matching object as of one moment; all namespaces if none is given."""
        found: Listing[T] = Listing([])
        token = ""
        while True:
            call = calls.read_list(
                resource,
                namespace=namespace,
                label_selector=label_selector,
                field_selector=field_selector,
                limit=page_size,
                continue_token=token,
            )
            try:
                body = self.call(call)
            except Gone:
                if not token:
                    raise
                # The pages expired under us; one whole page cannot.
                found, token, page_size = Listing([]), "", 0
                continue
            page = cast("Listing[T]", decode_list(resource.type, body, str(call)))
            found.items.extend(page.items)
            found.resource_version = page.resource_version
            token = page.continue_token
            if not token:
                return found

    def create(
        self,
        resource: Resource[T],
        body: Body,
        *,
        namespace: str | None = None,
        dry_run: bool = False,
        field_manager: str | None = None,
    ) -> T:
        """Create an object in `namespace`, or in the one its metadata names."""
        encoded = calls.encode(body)
        if namespace is None and resource.namespaced:
            namespace = calls.identity_of(encoded).namespace or self.namespace
        call = calls.create(
            resource,
            encoded,
            namespace=namespace,
            dry_run=dry_run,
            field_manager=field_manager or self._field_manager,
        )
        return self._decoded(resource, call)

    def replace(
        self,
        resource: Resource[T],
        body: Body,
        *,
        namespace: str | None = None,
        dry_run: bool = False,
    ) -> T:
        """Put `body` in place of the stored object; Conflict if its resourceVersion is old."""
        encoded = calls.encode(body)
        identity = calls.identity_of(encoded)
        call = calls.replace(
            resource,
            identity.name,
            encoded,
            namespace=self._in(resource, namespace or identity.namespace or None),
            dry_run=dry_run,
            field_manager=self._field_manager,
        )
        return self._decoded(resource, call)

    def patch(
        self,
        resource: Resource[T],
        name: str,
        body: Body,
        *,
        namespace: str | None = None,
        kind: PatchKind = "merge",
        subresource: str = "",
        expect: str | None = None,
        dry_run: bool = False,
        field_manager: str | None = None,
        force: bool = False,
    ) -> T:
        """Change part of an object; with `expect`, only if it is still at that resourceVersion."""
        call = calls.patch(
            resource,
            name,
            body if expect is None else calls.expecting(body, kind, expect),
            kind=kind,
            namespace=self._in(resource, namespace),
            sub=subresource,
            dry_run=dry_run,
            field_manager=field_manager or self._field_manager,
            force=force,
        )
        return self._decoded(resource, call)

    def patch_status(
        self,
        resource: Resource[T],
        name: str,
        status: Mapping[str, Any],
        *,
        namespace: str | None = None,
        expect: str | None = None,
    ) -> T:
        """Merge `status` into the stored one, wherever this kind keeps it."""
        return self.patch(
            resource,
            name,
            {"status": status},
            namespace=namespace,
            subresource="status" if resource.has_status else "",
            expect=expect,
        )

    def apply(
        self,
        resource: Resource[T],
        body: Body,
        *,
        field_manager: str,
        namespace: str | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> T:
        """Server-side apply: create or update so that `body` holds, owned by `field_manager`."""
        encoded = calls.encode(body)
        identity = calls.identity_of(encoded)
        return self.patch(
            resource,
            identity.name,
            encoded,
            namespace=namespace or identity.namespace or None,
            kind="apply",
            field_manager=field_manager,
            force=force,
            dry_run=dry_run,
        )

    def delete(
        self,
        resource: Resource[Any],
        name: str,
        *,
        namespace: str | None = None,
        grace_period_s: int | None = None,
        propagation: Propagation | None = None,
        uid: str | None = None,
        dry_run: bool = False,
        missing_ok: bool = False,
    ) -> bool:
        """Delete an object; False if `missing_ok` and there was none."""
        call = calls.delete(
            resource,
            name,
            namespace=self._in(resource, namespace),
            grace_period_s=grace_period_s,
            propagation=propagation,
            uid=uid,
            dry_run=dry_run,
        )
        try:
            self.call(call)
        except NotFound:
            if missing_ok:
                return False
            raise
        return True

    def subresource(
        self,
        resource: Resource[Any],
        name: str,
        subresource: str,
        *,
        namespace: str | None = None,
        body: Body | None = None,
    ) -> Obj:
        """Read any subresource, or POST `body` to it."""
        space = self._in(resource, namespace)
        if body is None:
            call = calls.read(resource, name, namespace=space, sub=subresource)
        else:
            call = calls.create(resource, body, namespace=space, name=name, sub=subresource)
        return self._decoded(resource.into(dict), call)

    def watch(
        self,
        resource: Resource[T],
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
        timeout_s: float | None = None,
    ) -> SyncWatch[T]:
        """Changes after `resource_version`: `with client.watch(JOBS) as events: for event in …`."""
        call = calls.watch(
            resource,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            resource_version=resource_version,
            timeout_s=timeout_s,
        )
        # No limit on silence: a watch has nothing to say while nothing changes.
        reader = WatchReader(resource.type, resource_version, str(call))
        return SyncWatch(self._transport.stream(call), cast("WatchReader[T]", reader))

    def logs(
        self,
        pod: str,
        *,
        namespace: str | None = None,
        container: str | None = None,
        follow: bool = False,
        previous: bool = False,
        timestamps: bool = False,
        tail_lines: int | None = None,
        since_s: int | None = None,
        limit_bytes: int | None = None,
        run: int | None = None,
    ) -> SyncStream:
        """A container's output in chunks: `with client.logs("p") as chunks: for chunk in …`."""
        call = calls.logs(
            pod,
            namespace=namespace or self.namespace,
            container=container,
            follow=follow,
            previous=previous,
            timestamps=timestamps,
            tail_lines=tail_lines,
            since_s=since_s,
            limit_bytes=limit_bytes,
            run=run,
        )
        return self._transport.stream(call, patient=True)

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        body: Body | None = None,
        accept: str = "",
    ) -> bytes:
        """Anything outside the resource scheme: `client.request("GET", "/version")`."""
        return self.call(calls.other(method, path, query=query, body=body, accept=accept))

    def _decoded(self, resource: Resource[T], call: Call) -> T:
        return cast(T, decode(resource.type, self.call(call), str(call)))

    def _in(self, resource: Resource[Any], namespace: str | None) -> str | None:
        return (namespace or self.namespace) if resource.namespaced else None


class SyncWatch(Generic[T]):
    """One watch connection; see `client.Watch`."""

    def __init__(self, stream: SyncStream, reader: WatchReader[T]) -> None:
        self._stream = stream
        self._reader = reader
        self._ready: Iterator[WatchEvent[T]] = iter(())

    @property
    def resource_version(self) -> str:
        """Where a new watch would resume."""
        return self._reader.resource_version

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Drop the connection."""
        self._stream.close()

    def __iter__(self) -> Iterator[WatchEvent[T]]:
        return self

    def __next__(self) -> WatchEvent[T]:
        while True:
            for event in self._ready:
                return event
            self._ready = self._reader.feed(next(self._stream))

"""Handlers of the generic verbs on any kind.

A handler returns a `Response` or raises `StatusError`; it does no I/O on the socket. Subresources,
discovery and health have separate modules.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any, TypedDict

import msgspec

from hekla.apiserver import errors
from hekla.apiserver.endpoints import bodies
from hekla.apiserver.endpoints.messages import JSON, Request, Response
from hekla.apiserver.endpoints.patching import media_type, patch_change
from hekla.apiserver.endpoints.watch import Shaper, Watch
from hekla.apiserver.registry.decoding import check_identity
from hekla.apiserver.registry.options import DeleteOptions, Options, WriteResult
from hekla.apiserver.registry.resources import Resources
from hekla.apiserver.request_info import Query, RequestInfo, parse_revision
from hekla.apiserver.schema.kinds import Served
from hekla.apiserver.storage import pagination
from hekla.apiserver.storage.selection import Matcher, matcher
from hekla.apiserver.storage.watch_cache import Entry
from hekla.apiserver.tables import Tables
from hekla.units.objects import Object

# Concurrent deletions of a collection share commits.
MAX_CONCURRENT_DELETES = 64
_MAX_WATCH_S = 365 * 86400
_WATCH_TIMEOUT_S = (1800.0, 3600.0)

encode = msgspec.json.encode
decode = msgspec.json.decode


class Selection(TypedDict):
    prefix: str
    name_key: str
    matches: Matcher | None


class Handlers:
    """Handles the generic verbs."""

    def __init__(self, resources: Resources, closing: asyncio.Event) -> None:
        self.resources = resources
        self.store = resources.store
        self.tables = Tables(resources.clock)
        self._closing = closing
        self._jitter = random.Random()

    async def handle(self, served: Served, request: Request) -> Response:
        verb = request.target.verb
        if verb not in served.kind.verbs:
            raise errors.method_not_allowed()
        if verb in ("update", "patch") and not request.target.name:
            raise errors.method_not_allowed()
        match verb:
            case "get":
                return await self.get(served, request)
            case "list":
                return await self.list(served, request)
            case "watch":
                return await self.watch(served, request)
            case "create":
                return await self.create(served, request)
            case "update":
                return await self.update(served, request)
            case "patch":
                return await self.patch(served, request)
            case "delete":
                return await self.delete(served, request)
            case "deletecollection":
                return await self.delete_collection(served, request)
        raise errors.method_not_allowed()

    # Reading

    async def get(self, served: Served, request: Request) -> Response:
        await self._fresh(request.query)
        target = request.target
        entry = self.resources.find(served, target.namespace, target.name)
        served = await self.resources.with_conversions(served, [entry.body])
        return self.respond(served, request, entry.body)

    async def list(self, served: Served, request: Request) -> Response:
        query = request.query
        revision = await self._fresh(query)
        matching = query.resource_version_match
        token = query.get("continue")
        if token and revision not in (None, 0):
            raise errors.bad_request(
                "specifying resource version is not allowed when using continue"
            )
        query.number("timeoutSeconds")  # unused, but validated as upstream
        page = pagination.page(
            self.store,
            served.storage,
            **self._selection(served, request),
            limit=query.limit,
            continue_token=token,
            exact_revision=revision if matching == "Exact" else None,
        )
        metadata: Object = {"resourceVersion": str(page.revision)}
        if page.continue_token:
            metadata["continue"] = page.continue_token
            if page.remaining:
                metadata["remainingItemCount"] = page.remaining
        served = await self.resources.with_conversions(
            served, (entry.body for entry in page.entries)
        )
        return self._respond_list(served, request, page.entries, metadata)

    def _respond_list(
        self, served: Served, request: Request, entries: Sequence[Entry], metadata: Object
    ) -> Response:
        shape = request.accept.shape
        if shape == "Table":
            objects = (decode(served.serve(entry.body)) for entry in entries)
            include = request.query.get("includeObject", "Metadata")
            table, rows = self.tables.parts(served, objects, metadata, include)
            head = encode(table).removesuffix(b"]}")
            return Response(200, pagination.chunks(head, map(encode, rows), b"]}\n"))
        kind, api_version = served.kind.list_kind, served.kind.api_version
        bodies = (served.serve(entry.body) for entry in entries)
        if shape == "PartialObjectMetadata":
            kind, api_version = "PartialObjectMetadataList", "meta.k8s.io/v1"
            bodies = (partial_metadata(body) for body in bodies)
        head = (
            b'{"kind":' + encode(kind) + b',"apiVersion":' + encode(api_version)
            + b',"metadata":' + encode(metadata) + b',"items":['
        )  # fmt: skip
        return Response(200, pagination.chunks(head, bodies, b"]}\n"))

    async def watch(self, served: Served, request: Request) -> Response:
        query = request.query
        since = parse_revision(query.get("resourceVersion"))
        initial = query.get("sendInitialEvents").lower() in ("true", "1")
        query.check_watch_match()
        if initial:
            if since:
                await self._fresh(query)
            since = None
        elif since == 0:
            since = None
        bookmarks = query.flag("allowWatchBookmarks")
        view = await self.resources.with_conversions(served, ())
        watch = Watch(
            self.store,
            served.storage,
            **self._selection(served, request),
            shape=self._shaper(view, request),
            convert=(
                None
                if view.webhook is None
                else lambda found: self.resources.conversions.prepare(view, found)
            ),
            bookmark=(lambda rv, end: _bookmark(served, rv, end)) if bookmarks else None,
        )
        timeout = query.number("timeoutSeconds") or self._jitter.uniform(*_WATCH_TIMEOUT_S)
        lines = watch.lines(
            since,
            closing=self._closing,
            timeout_s=float(min(timeout, _MAX_WATCH_S)),
            initial_events_end=since is None,
        )
        return Response(200, lines)

    # Writing

    async def create(self, served: Served, request: Request) -> Response:
        options = request.options()
        obj = self._read(served, request, options)
        written = await self.resources.create(served, request.target.namespace, obj, options)
        return self._respond_written(served, request, written)

    async def update(self, served: Served, request: Request) -> Response:
        options = request.options()
        obj = self._read(served, request, options)
        target = request.target
        check_identity(served, target.namespace, obj, name=target.name)

        def replace(live: Object) -> Object:
            uid = obj["metadata"].get("uid")
            if live and (not uid or uid == live["metadata"]["uid"]):
                self._require_version(served, obj, target.name)
            copied: Object = decode(encode(obj))  # the update may be retried
            return copied

        written = await self.resources.update(
            served,
            target.namespace,
            target.name,
            replace,
            options,
            create_missing=served.may_create_on_update and not target.subresource,
        )
        return self._respond_written(served, request, written)

    def _read(self, served: Served, request: Request, options: Options) -> Any:
        """Return the body's object. Only built-in kinds may omit apiVersion and kind."""
        obj = bodies.read(request.body, request.content_type, options)
        if not served.custom or not isinstance(obj, dict):
            return obj
        kind = served.kind
        for label in ("kind", "apiVersion"):
            if not obj.get(label):
                raise errors.bad_request(
                    f"the object provided is unrecognized (must be of type {kind.kind}): "
                    f"'{label}' is missing"
                )
        return obj

    def _require_version(self, served: Served, obj: Any, name: str) -> None:
        """Require a resourceVersion for custom kinds and some built-in ones, as upstream."""
        metadata = obj.get("metadata") if isinstance(obj, dict) else None
        if (
            served.needs_version
            and isinstance(metadata, dict)
            and not metadata.get("resourceVersion")
        ):
            causes = [
                {
                    "reason": "FieldValueInvalid",
                    "message": "Invalid value: 0x0: must be specified for an update",
                    "field": "metadata.resourceVersion",
                }
            ]
            kind = served.kind
            raise errors.invalid(kind.group, kind.plural, name, causes)

    async def patch(self, served: Served, request: Request) -> Response:
        options = request.options()
        target = request.target
        media = media_type(request)
        bodies.check_patch_type(media, custom=served.custom)
        if media != bodies.APPLY:
            self.resources.check_exists(served, target.namespace, target.name)
        change, is_apply = patch_change(served, request, options, self.resources.now())
        written = await self.resources.update(
            served,
            target.namespace,
            target.name,
            change,
            options,
            create_missing=is_apply and not target.subresource,
        )
        return self._respond_written(served, request, written)

    async def delete(self, served: Served, request: Request) -> Response:
        target = request.target
        delete_options, options = read_delete_options(request), request.options()
        written = await self.resources.delete(
            served, target.namespace, target.name, options, delete_options
        )
        if not written.removed or served.returns_deleted:
            served = await self.resources.with_conversions(served, [written.body])
            return self.respond(served, request, written.body)
        return Response.of(_deleted(served, written.obj))

    async def delete_collection(self, served: Served, request: Request) -> Response:
        query = request.query
        delete_options, options = read_delete_options(request), request.options()
        page = pagination.page(
            self.store,
            served.storage,
            **self._selection(served, request),
            limit=query.limit,
            continue_token=query.get("continue"),
        )

        async def delete(entry: Entry) -> None:
            namespace, _, name = entry.key.rpartition("/")
            try:
                await self.resources.delete(served, namespace, name, options, delete_options)
            except errors.StatusError as error:
                if error.code != 404:
                    raise

        for start in range(0, len(page.entries), MAX_CONCURRENT_DELETES):
            await asyncio.gather(*map(delete, page.entries[start : start + MAX_CONCURRENT_DELETES]))
        served = await self.resources.with_conversions(
            served, (entry.body for entry in page.entries)
        )
        return self._respond_list(
            served, request, page.entries, {"resourceVersion": str(self.store.revision)}
        )

    # Responses

    def respond(self, served: Served, request: Request, body: bytes, status: int = 200) -> Response:
        """Return one object in the accepted representation."""
        shaper = self._shaper(served, request)
        if shaper is not None:
            return Response(status, shaper(body) + b"\n")
        if request.accept.yaml:
            return Response(status, bodies.to_yaml(body), "application/yaml")
        return Response(status, body + b"\n")

    def _respond_written(self, served: Served, request: Request, written: WriteResult) -> Response:
        status = 201 if written.created else 200
        return self.respond(served, request, written.body, status)

    def _shaper(self, served: Served, request: Request) -> Shaper | None:
        shape = request.accept.shape
        if shape == "Table":
            include = request.query.get("includeObject", "Metadata")

            def as_table(body: bytes) -> bytes:
                obj = decode(served.serve(body))
                metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
                return encode(self.tables.table(served, [obj], metadata, include))

            return as_table
        if shape == "PartialObjectMetadata":
            return lambda body: partial_metadata(served.serve(body))
        is_as_stored = served.from_storage is None and served.converted is None
        return None if is_as_stored else served.serve

    # Selection

    def _selection(self, served: Served, request: Request) -> Selection:
        """Return the selection of a list, watch or deletecollection."""
        return {
            "prefix": self._prefix(served, request.target),
            "name_key": self._name_key(served, request),
            "matches": self._matcher(served, request.query),
        }

    def _prefix(self, served: Served, target: RequestInfo) -> str:
        return f"{target.namespace}/" if served.kind.namespaced and target.namespace else ""

    def _name_key(self, served: Served, request: Request) -> str:
        """Return the single key of a request: by path (an old-style watch) or metadata.name=."""
        target = request.target
        name = target.name
        if not name:
            fields = request.query.fields
            name = (fields.get("metadata.name") if fields is not None else None) or ""
        if not name or (served.kind.namespaced and not target.namespace):
            return ""
        return served.key(target.namespace, name)

    def _matcher(self, served: Served, query: Query) -> Matcher | None:
        fields = query.fields
        if fields is not None:
            for term in fields.terms:
                if not served.fields.supports(term.field):
                    raise errors.bad_request(
                        f"field label not supported: {term.field}; {served.kind.plural} can be "
                        "selected by "
                        + ", ".join(("metadata.name", "metadata.namespace", *served.fields.paths))
                    )
        return matcher(query.labels, fields, served.fields)

    async def _fresh(self, query: Query) -> int | None:
        """Wait briefly for a revision that the client has seen and that is not yet published."""
        requested = parse_revision(query.get("resourceVersion"))
        if requested and requested > self.store.revision:
            await self.store.stage()
            if requested > self.store.revision:
                raise errors.version_too_large(requested, self.store.revision)
        return requested


def partial_metadata(body: bytes) -> bytes:
    """Return an object reduced to its metadata."""
    metadata = decode(body, type=_MetadataOnly).metadata
    return (
        b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":'
        + bytes(metadata)
        + b"}"
    )


class _MetadataOnly(msgspec.Struct):
    metadata: msgspec.Raw


def _bookmark(served: Served, revision: int, initial_events_end: bool) -> bytes:
    metadata: Object = {"resourceVersion": str(revision)}
    if initial_events_end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    kind = served.kind
    return encode({"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata})


def _deleted(served: Served, obj: Object) -> Object:
    details = {"name": obj["metadata"]["name"], "kind": served.kind.plural}
    if served.kind.group:
        details["group"] = served.kind.group
    details["uid"] = obj["metadata"]["uid"]
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }


def read_delete_options(request: Request) -> DeleteOptions:
    """Return delete options from body and query; the query decides on dry-run only."""
    given: Object = {}
    if request.body.strip():
        given = bodies.read(request.body, request.content_type or JSON, None)
        if not isinstance(given, dict):
            raise errors.bad_request("DeleteOptions must be an object")
    query = request.query
    grace = given.get("gracePeriodSeconds", query.number("gracePeriodSeconds"))
    if grace is not None and (not isinstance(grace, int) or isinstance(grace, bool)):
        raise errors.bad_request("gracePeriodSeconds must be a whole number")
    if grace is not None and not -(2**63) <= grace < 2**63:
        raise errors.bad_request("gracePeriodSeconds must be a number of 64 bits")
    if given.get("dryRun") and not request.query.is_dry_run:
        request.query.repeated["dryRun"] = list(given["dryRun"])
    propagation = given.get("propagationPolicy") or query.get("propagationPolicy")
    orphan = given.get("orphanDependents")
    if orphan is None and "orphanDependents" in query.values:
        orphan = query.flag("orphanDependents")
    if orphan is not None:
        if propagation:
            raise errors.bad_request(
                "orphanDependents and propagationPolicy cannot be both set; use the latter"
            )
        propagation = "Orphan" if orphan else "Background"
    if propagation not in ("", None, "Background", "Foreground", "Orphan"):
        raise errors.invalid_options(
            "DeleteOptions",
            "propagationPolicy",
            "FieldValueNotSupported",
            f'Unsupported value: "{propagation}": supported values: "Foreground", "Background", '
            '"Orphan", "nil"',
        )
    preconditions = given.get("preconditions") or {}
    return DeleteOptions(
        grace_s=grace,
        propagation=propagation or "",
        uid=preconditions.get("uid") or "",
        revision=preconditions.get("resourceVersion") or "",
    )

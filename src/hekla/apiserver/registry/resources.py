"""Create, update and delete objects of any kind.

Each write goes through the same steps:

    decode > schema (prune, default, type) > strategy > admission > validation > stage

Kind-specific steps are in `strategies`.

Note: a write reads `store.head` and stages without yielding to the event loop in between, so
concurrent writers cannot overwrite each other. If it must await, the store checks the version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from hekla.api import defaults
from hekla.apiserver import errors
from hekla.apiserver.admission.chain import AdmissionChain
from hekla.apiserver.admission.config import AdmissionConfig
from hekla.apiserver.admission.plugin import Attributes, RelatedWrite
from hekla.apiserver.registry import conversion_webhooks, server_metadata, strategies, validation
from hekla.apiserver.registry.conversion_webhooks import ConversionWebhooks
from hekla.apiserver.registry.decoding import check_identity, check_schema
from hekla.apiserver.registry.identifiers import SUFFIX_LENGTH, Identifiers
from hekla.apiserver.registry.managed_fields import STATUS_LIKE, ManagedFields
from hekla.apiserver.registry.options import DeleteOptions, Options, WriteResult
from hekla.apiserver.registry.service_addresses import SERVICES, ServiceAddresses
from hekla.apiserver.schema.kinds import Registry, Served
from hekla.apiserver.storage.store import Stale, Store, StoreError
from hekla.apiserver.storage.watch_cache import Entry
from hekla.apiserver.webhook_client import WebhookClient
from hekla.units.clock import Clock, SystemClock
from hekla.units.objects import Object
from hekla.units.timestamps import format_time

Change = Callable[[Object], Object]

_MAX_GENERATED = 63
_STALE_RETRIES = 8

encode = msgspec.json.encode
decode = msgspec.json.Decoder().decode


class Resources:
    """Create, update and delete objects of any served kind."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        *,
        clock: Clock | None = None,
        identifiers: Identifiers | None = None,
        admission: AdmissionConfig | None = None,
    ) -> None:
        self.store = store
        self.registry = registry
        self.clock = clock or SystemClock()
        self._identifiers = identifiers or Identifiers()
        self.webhook_client = WebhookClient(store)
        self.conversions = ConversionWebhooks(self.webhook_client, self._identifiers)
        self.admission = AdmissionChain(self, admission or AdmissionConfig())
        self.managed_fields = ManagedFields(self.clock)
        self.service_addresses = ServiceAddresses(store, self.clock)

    def now(self) -> str:
        return format_time(self.clock.now())

    def new_uid(self) -> str:
        return self._identifiers.uid()

    async def in_version(self, served: Served, obj: Object) -> Object:
        """Return a copy of an object in the version of `served`."""
        if obj["apiVersion"] != served.kind.api_version:
            if served.webhook is not None:
                return (await self.conversions.convert(served, [obj]))[0]
            source = self.registry.by_kind(obj["apiVersion"], served.kind.kind)
            if source is not None and source.to_storage is not None:
                obj = source.to_storage(obj)
            if served.from_storage is not None:
                obj = served.from_storage(obj)
        copied: Object = decode(encode(obj))
        return copied

    async def with_conversions(self, served: Served, bodies: Iterable[bytes]) -> Served:
        """Return `served`, able to convert these stored bytes; a copy if a webhook is needed."""
        if served.webhook is None:
            return served
        _ = served.structural_schema  # compiled once for all copies
        view = replace(served, converted={})
        await self.conversions.prepare(view, bodies)
        return view

    async def _to_storage_version(self, served: Served, obj: Object) -> Object | None:
        """Return the object in the storage version; None if `obj` is in it."""
        if served.webhook is None or served.is_stored:
            return None
        stored = self.registry.of_storage(served.storage)
        if stored is None:
            raise errors.internal(
                f"the storage version of {served.kind.plural}.{served.kind.group} is not served"
            )
        return await self.in_version(stored, obj)

    # Reading

    def find(self, served: Served, namespace: str, name: str) -> Entry:
        """Return the committed object, or raise 404."""
        entry = self.store.get(served.storage, served.key(namespace, name))
        if entry is None:
            raise errors.not_found(served.kind.group, served.kind.plural, name)
        return entry

    def check_exists(self, served: Served, namespace: str, name: str) -> None:
        """Raise 404 for a missing object before the rest of the request is checked."""
        if self.store.head(served.storage, served.key(namespace, name)) is None:
            raise errors.not_found(served.kind.group, served.kind.plural, name)

    # Create

    async def create(
        self, served: Served, namespace: str, obj: Object, options: Options | None = None
    ) -> WriteResult:
        """Store a new object; 409 when the name is taken."""
        options = options or Options()
        check_identity(served, namespace, obj, name=None)
        check_schema(served, obj, options)
        metadata = obj["metadata"]
        if served.storage == "limitranges" and not metadata.get("generateName"):
            metadata.setdefault("name", self._identifiers.uid())  # as upstream
        generate = not metadata.get("name")
        for attempt in range(8):
            if generate:
                metadata["name"] = self._generate_name(served, metadata.get("generateName"))
            try:
                return await self._create(served, namespace, obj, options, generate)
            except Stale:  # another request created it during the webhook calls
                error = errors.already_exists(
                    served.kind.group, served.kind.plural, metadata["name"]
                )
                if not generate or attempt == 7:
                    raise error from None
            except errors.StatusError as error:
                if not generate or error.reason != "AlreadyExists" or attempt == 7:
                    raise
        raise AssertionError("unreachable")

    def _generate_name(self, served: Served, base: str | None) -> str:
        if not base:
            causes = [
                {
                    "reason": "FieldValueRequired",
                    "message": "Required value: name or generateName is required",
                    "field": "metadata.name",
                }
            ]
            raise errors.invalid(served.kind.group, served.kind.kind, "", causes)
        return base[: _MAX_GENERATED - SUFFIX_LENGTH] + self._identifiers.suffix()

    async def _create(
        self,
        served: Served,
        namespace: str,
        obj: Object,
        options: Options,
        is_name_generated: bool = False,
    ) -> WriteResult:
        metadata = obj["metadata"]
        key = served.key(namespace, metadata["name"])
        for stale in ("selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"):
            metadata.pop(stale, None)
        if metadata.pop("resourceVersion", None) not in (None, "", "0"):
            raise errors.bad_request("resourceVersion should not be set on objects to be created")
        metadata["uid"] = self._identifiers.uid()
        metadata["creationTimestamp"] = self.now()
        metadata.pop("generation", None)
        if served.has_generation:
            metadata["generation"] = 1
        validation.apply_defaults(served, obj)
        # Fields set by admission and strategies have no field manager, as upstream.
        self.managed_fields.track(served, None, obj, options)
        attributes = Attributes("create", served, namespace, obj, None, options, is_name_generated)
        await self.admission.mutate(attributes)
        needs_review = self.admission.needs_review(attributes)
        if needs_review and await self.admission.call_mutating(attributes):
            name, uid = metadata["name"], metadata["uid"]
            self._redecode(served, namespace, name, obj, options)
            obj["metadata"]["uid"] = uid
            validation.apply_defaults(served, obj)
            await self.admission.mutate(attributes)
        strategies.prepare_create(served, obj, self.now(), options.user)
        if served.storage == SERVICES:
            self.service_addresses.assign(obj, None, dry_run=options.dry_run)
        validation.validate(served, obj, None, options)
        if self.store.head(served.storage, key) is not None:
            raise errors.already_exists(served.kind.group, served.kind.plural, metadata["name"])
        related = self.admission.validate(attributes)
        if needs_review:
            await self.admission.call_validating(attributes)
        stored = await self._to_storage_version(served, obj)
        if needs_review or stored is not None:
            related = self.admission.validate(attributes)  # state may have changed during the calls
        return await self._stage(
            served, key, obj, None, options, created=True, related=related, stored=stored
        )

    def _redecode(
        self, served: Served, namespace: str, name: str, obj: Object, options: Options
    ) -> None:
        """Decode an object again after webhooks changed it. Unknown fields that they added are
        dropped silently, as the client did not send them."""
        check_identity(served, namespace, obj, name=name)
        check_schema(served, obj, replace(options, field_validation="Ignore"))

    # Update

    async def update(
        self,
        served: Served,
        namespace: str,
        name: str,
        change: Change,
        options: Options | None = None,
        *,
        create_missing: bool = False,
    ) -> WriteResult:
        """Replace an object by the result of `change` on its newest version.

        `change` gets a copy that it may modify. If its result has a resourceVersion, that must be
        the
        newest; otherwise the change is retried on conflict.
        """
        options = options or Options()
        key = served.key(namespace, name)
        for _ in range(_STALE_RETRIES):
            entry = self.store.head(served.storage, key)
            if entry is None:
                if not create_missing:
                    raise errors.not_found(served.kind.group, served.kind.plural, name)
                obj = change({})
                check_identity(served, namespace, obj, name=name)
                if obj["metadata"].get("uid"):
                    gone = f"Precondition failed: UID in precondition: {obj['metadata']['uid']}"
                    kind = served.kind
                    raise errors.conflict(
                        kind.group, kind.plural, name, f"{gone}, UID in object meta: "
                    )
                return await self.create(served, namespace, obj, options)
            try:
                return await self._update(served, namespace, name, entry, change, options)
            except Stale:
                continue
        raise errors.conflict(
            served.kind.group, served.kind.plural, name, "it is changing too quickly; try again"
        )

    async def _update(
        self,
        served: Served,
        namespace: str,
        name: str,
        entry: Entry,
        change: Change,
        options: Options,
    ) -> WriteResult:
        old: Object = decode(entry.body)
        if served.webhook is not None:
            old = await self.in_version(served, old)
        shown: Object = decode(encode(old)) if served.webhook is not None else decode(entry.body)
        obj = change(served.from_storage(shown) if served.from_storage else shown)
        check_identity(served, namespace, obj, name=name)
        server_metadata.check_update_preconditions(served, obj, old)
        check_schema(served, obj, options)
        server_metadata.preserve_server_fields(served, obj, old, options)
        attributes = Attributes("update", served, namespace, obj, old, options)
        related: Sequence[RelatedWrite] = ()
        # Status writes and bindings are not subject to the rules for what users write; those
        # would refuse spec.nodeName, for example. A binding is checked in its subresource.
        if options.subresource in STATUS_LIKE:
            await self._admit_status(attributes, name)
        elif options.subresource != "binding":
            related = await self._admit_update(attributes, name)
        stored = await self._to_storage_version(served, obj)
        if options.subresource != "binding":  # a binding does not change the generation
            server_metadata.bump_generation(served, obj, old)
        self.managed_fields.track(served, old, obj, options)
        if obj == old:
            # As upstream, an update without changes writes nothing. The version it was compared
            # with may not be committed yet, so wait for that.
            if not options.dry_run and self.store.get(served.storage, entry.key) is not entry:
                await self._await(self.store.stage())
            return WriteResult(obj, entry.body if served.webhook is None else encode(obj))
        if _is_deletable(served, obj):
            return await self._remove(served, entry, obj, options)
        return await self._stage(
            served, entry.key, obj, entry, options, related=related, stored=stored
        )

    async def _admit_update(self, attributes: Attributes, name: str) -> Sequence[RelatedWrite]:
        """Run defaulting, admission and validation; return what to write along with the object."""
        served, obj, options = attributes.served, attributes.obj, attributes.options
        old = attributes.old
        assert old is not None

        async def prepare() -> None:
            validation.apply_defaults(served, obj)
            strategies.prepare_update(served, obj, old, options.subresource, self.now())
            if served.storage == SERVICES:
                self.service_addresses.assign(obj, old, dry_run=options.dry_run)
            await self.admission.mutate(attributes)

        await prepare()
        needs_review = self.admission.needs_review(attributes)
        if needs_review and await self.admission.call_mutating(attributes):
            self._redecode(served, attributes.namespace, name, obj, options)
            server_metadata.preserve_server_fields(served, obj, old, options)
            await prepare()
        validation.validate(served, obj, old, options)
        related = self.admission.validate(attributes)
        if needs_review:
            await self.admission.call_validating(attributes)
            related = self.admission.validate(attributes)
        return related

    async def _admit_status(self, attributes: Attributes, name: str) -> None:
        """Run defaulting, webhooks and CEL rules for a write to the status."""
        served, obj, old = attributes.served, attributes.obj, attributes.old
        assert old is not None
        options = attributes.options
        if not served.custom:
            defaults.apply_status_defaults(obj)
        if self.admission.needs_review(attributes):
            if await self.admission.call_mutating(attributes):
                self._redecode(served, attributes.namespace, name, obj, options)
                server_metadata.preserve_server_fields(served, obj, old, options)
            await self.admission.call_validating(attributes)
        validation.check_rules(served, obj, old, options)

    # Delete

    async def delete(
        self,
        served: Served,
        namespace: str,
        name: str,
        options: Options | None = None,
        delete_options: DeleteOptions | None = None,
    ) -> WriteResult:
        """Delete an object, or mark it for deletion if it has finalizers or a grace period."""
        options = options or Options()
        delete_options = delete_options or DeleteOptions()
        for _ in range(_STALE_RETRIES):
            entry = self.store.head(served.storage, served.key(namespace, name))
            if entry is None:
                raise errors.not_found(served.kind.group, served.kind.plural, name)
            try:
                return await self._delete(served, namespace, entry, options, delete_options)
            except Stale:  # it changed during the webhook calls
                continue
        raise errors.conflict(
            served.kind.group, served.kind.plural, name, "it is changing too quickly; try again"
        )

    async def _delete(
        self,
        served: Served,
        namespace: str,
        entry: Entry,
        options: Options,
        delete_options: DeleteOptions,
    ) -> WriteResult:
        obj: Object = decode(entry.body)
        key = entry.key
        server_metadata.check_delete_preconditions(served, obj, delete_options)
        attributes = Attributes("delete", served, namespace, obj, obj, options)
        self.admission.validate(attributes)
        if self.admission.needs_review(attributes):
            await self.admission.call_mutating(attributes)
            await self.admission.call_validating(attributes)
        before = decode(entry.body)
        server_metadata.set_deletion_finalizers(obj, delete_options.propagation)
        grace = strategies.grace_period(served, obj, delete_options.grace_s)
        if grace == 0 and not server_metadata.has_finalizers(served, obj):
            removed = await self._remove(served, entry, obj, options)
            return strategies.as_deleted(served, removed, self.now())
        metadata = obj["metadata"]
        shorter = grace < metadata.get("deletionGracePeriodSeconds", grace + 1)
        if "deletionTimestamp" not in metadata or shorter:
            metadata["deletionTimestamp"] = format_time(self.clock.now() + grace)
            metadata["deletionGracePeriodSeconds"] = grace
            if "generation" in metadata:
                metadata["generation"] += 1
        strategies.prepare_delete(served, obj)
        if obj == before:
            return WriteResult(obj, entry.body)
        return await self._stage(served, key, obj, entry, options)

    async def _remove(
        self, served: Served, entry: Entry, obj: Object, options: Options
    ) -> WriteResult:
        if options.dry_run:
            return WriteResult(obj, encode(obj), removed=True)
        return await self._stage(served, entry.key, obj, entry, options, removed=True)

    # Shared

    async def _stage(
        self,
        served: Served,
        key: str,
        obj: Object,
        previous: Entry | None,
        options: Options,
        *,
        created: bool = False,
        removed: bool = False,
        related: Sequence[RelatedWrite] = (),
        stored: Object | None = None,
    ) -> WriteResult:
        if options.dry_run:
            return WriteResult(obj, encode(obj), created=created, removed=removed)
        revision = self.store.next_revision()
        obj["metadata"]["resourceVersion"] = str(revision)
        body = kept = encode(obj)
        if stored is not None:
            # Conversion may change labels and annotations only.
            changed = {
                k: v
                for k, v in stored["metadata"].items()
                if k in conversion_webhooks.MUTABLE_METADATA
            }
            stored["metadata"] = {**obj["metadata"], **changed}
            kept = encode(stored)
        change = (served.storage, Entry(key, revision, kept), previous, removed)
        await self._await(self.store.stage(change, *map(self._next_version, related)))
        return WriteResult(obj, body, created=created, removed=removed)

    async def write_back(self, changes: Sequence[RelatedWrite]) -> None:
        """Store objects that the server computed from their newest version."""
        if changes:
            await self._await(self.store.stage(*map(self._next_version, changes)))

    def _next_version(self, related: RelatedWrite) -> tuple[str, Entry, Entry | None, bool]:
        """Return an object's next version as a change for the store."""
        revision = self.store.next_revision()
        related.obj["metadata"]["resourceVersion"] = str(revision)
        entry = Entry(related.entry.key, revision, encode(related.obj))
        return related.storage, entry, related.entry, False

    async def _await(self, done: Any) -> None:
        try:
            await done
        except StoreError as error:
            raise errors.internal(str(error)) from error


def _is_deletable(served: Served, obj: Object) -> bool:
    """Whether an object that is being deleted waits for neither its node nor a finalizer."""
    metadata = obj["metadata"]
    waits_for_node = metadata.get("deletionGracePeriodSeconds", 0) > 0
    return (
        "deletionTimestamp" in metadata
        and not waits_for_node
        and not server_metadata.has_finalizers(served, obj)
    )

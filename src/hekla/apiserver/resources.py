"""The verbs of the API on plain objects: create, update, delete, for every kind alike.

HTTP comes in above (`app`), bytes go out below (`store`). In between every write goes one way:

    decode > schema (prune, default, type) > kind's own preparation > admission > rules > stage

A write decides on `store.head` and stages without giving up the event loop in between, so two
writers cannot slip past each other; what is special about a kind lives in `strategies`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from hekla.api import defaults, rules
from hekla.apiserver import conversions, errors, strategies
from hekla.apiserver.admission import Admission, Also, Attempt
from hekla.apiserver.authn import SYSTEM, User
from hekla.apiserver.callouts import Callouts
from hekla.apiserver.conversions import Conversions
from hekla.apiserver.history import Entry
from hekla.apiserver.identifiers import SUFFIX_LENGTH, Identifiers
from hekla.apiserver.intake import check_identity, check_schema
from hekla.apiserver.ownership import STATUS_LIKE, Ownership
from hekla.apiserver.registry import Registry, Served
from hekla.apiserver.store import Stale, Store, StoreError
from hekla.units.clock import Clock, SystemClock
from hekla.units.objects import Object
from hekla.units.timestamps import format_time

Change = Callable[[Object], Object]

_MAX_GENERATED = 63
_STALE_RETRIES = 8
FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"

encode = msgspec.json.encode
decode = msgspec.json.Decoder().decode


@dataclass(slots=True)
class Options:
    """How a write is to be made."""

    user: User = SYSTEM
    dry_run: bool = False
    manager: str = "hekla"
    field_validation: str = "Ignore"
    find_duplicates: bool = False
    subresource: str = ""
    applies: bool = False
    reviewed: bool = False
    """Hooks have been asked about what this write follows from (a Scale, a Binding)."""
    warnings: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    """Fields the body gives more than once, when `find_duplicates` asked for them."""


@dataclass(slots=True)
class DeleteOptions:
    grace_s: int | None = None
    propagation: str = ""  # Background, Foreground or Orphan
    uid: str = ""
    revision: str = ""


@dataclass(slots=True)
class Written:
    """The outcome of a write: the object as stored, its bytes, and what happened."""

    obj: Object
    body: bytes
    created: bool = False
    removed: bool = False


class Resources:
    """Create, update and delete objects of any served kind."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        *,
        clock: Clock | None = None,
        identifiers: Identifiers | None = None,
    ) -> None:
        self.store = store
        self.registry = registry
        self.clock = clock or SystemClock()
        self._identifiers = identifiers or Identifiers()
        self.callouts = Callouts(store)
        self.conversions = Conversions(self.callouts, self._identifiers)
        self.admission = Admission(self)
        self.ownership = Ownership(self.clock)

    def now(self) -> str:
        return format_time(self.clock.now())

    def new_uid(self) -> str:
        return self._identifiers.uid()

    async def in_version(self, served: Served, obj: Object) -> Object:
        """A copy of an object, in whatever version it is, as `served` shows it."""
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

    async def ready(self, served: Served, bodies: Iterable[bytes]) -> Served:
        """`served`, able to show these stored bytes; a copy where that takes a webhook."""
        if served.webhook is None:
            return served
        _ = served.structure  # compiled once, for every copy
        view = replace(served, shown={})
        await self.conversions.prepare(view, bodies)
        return view

    async def _storable(self, served: Served, obj: Object) -> Object | None:
        """What to store in place of `obj`; None when it is stored as it is."""
        if served.webhook is None or served.is_stored:
            return None
        stored = self.registry.of_storage(served.storage)
        if stored is None:
            raise errors.internal(
                f"the version that {served.kind.plural}.{served.kind.group} are stored in is "
                "not served"
            )
        return await self.in_version(stored, obj)

    # Reading

    def find(self, served: Served, namespace: str, name: str) -> Entry:
        """The committed object, or 404."""
        entry = self.store.get(served.storage, served.key(namespace, name))
        if entry is None:
            raise errors.not_found(served.kind.group, served.kind.plural, name)
        return entry

    def must_exist(self, served: Served, namespace: str, name: str) -> None:
        """404 for what is not there, before anybody looks at what is to be done to it."""
        if self.store.head(served.storage, served.key(namespace, name)) is None:
            raise errors.not_found(served.kind.group, served.kind.plural, name)

    # Create

    async def create(
        self, served: Served, namespace: str, obj: Object, options: Options | None = None
    ) -> Written:
        """Store a new object; 409 when the name is taken."""
        options = options or Options()
        check_identity(served, namespace, obj, name=None)
        check_schema(served, obj, options)
        metadata = obj["metadata"]
        generate = not metadata.get("name")
        for attempt in range(8):
            if generate:
                metadata["name"] = self._generate_name(served, metadata.get("generateName"))
            try:
                return await self._create(served, namespace, obj, options, generate)
            except Stale:  # somebody was quicker while hooks were asked
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
    ) -> Written:
        metadata = obj["metadata"]
        key = served.key(namespace, metadata["name"])
        for stale in ("selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"):
            metadata.pop(stale, None)
        if metadata.pop("resourceVersion", None) not in (None, "", "0"):
            raise errors.bad_request("resourceVersion should not be set on objects to be created")
        metadata["uid"] = self._identifiers.uid()
        metadata["creationTimestamp"] = self.now()
        metadata.pop("generation", None)
        if served.counts_generation:
            metadata["generation"] = 1
        self._default(served, obj)
        # What admission and the kind's own preparation add is nobody's, as upstream.
        self.ownership.track(served, None, obj, options)
        attempt = Attempt("create", served, namespace, obj, None, options, is_name_generated)
        await self.admission.mutate(attempt)
        is_asked = self.admission.is_asked(attempt)
        if is_asked and await self.admission.ask_mutating(attempt):
            name, uid = metadata["name"], metadata["uid"]
            self._take_back(served, namespace, name, obj, options)
            obj["metadata"]["uid"] = uid
            self._default(served, obj)
            await self.admission.mutate(attempt)
        strategies.prepare_create(served, obj, self.now(), options.user)
        self._validate(served, obj, None, options)
        if self.store.head(served.storage, key) is not None:
            raise errors.already_exists(served.kind.group, served.kind.plural, metadata["name"])
        extra = self.admission.validate(attempt)
        if is_asked:
            await self.admission.ask_validating(attempt)
        stored = await self._storable(served, obj)
        if is_asked or stored is not None:
            extra = self.admission.validate(attempt)  # the world may have moved meanwhile
        return await self._stage(
            served, key, obj, None, options, created=True, extra=extra, stored=stored
        )

    def _take_back(
        self, served: Served, namespace: str, name: str, obj: Object, options: Options
    ) -> None:
        """Hooks changed an object: it is looked at as if it came in now. What they add beyond
        the schema is dropped without a word, for the client did not send it."""
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
    ) -> Written:
        """Replace an object by what `change` makes of the newest version.

        `change` gets a copy it may alter. With a resourceVersion in its result the object must
        not have changed meanwhile; without one, the change is made again on top of the newest.
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
    ) -> Written:
        old: Object = decode(entry.body)
        if served.webhook is not None:
            old = await self.in_version(served, old)
        shown: Object = decode(encode(old)) if served.webhook is not None else decode(entry.body)
        obj = change(served.from_storage(shown) if served.from_storage else shown)
        check_identity(served, namespace, obj, name=name)
        self._check_preconditions(served, obj, old)
        check_schema(served, obj, options)
        self._carry_over(served, obj, old, options)
        extra: Sequence[Also] = ()
        # A status is its writer's word, and a binding is checked where it is made: the rules for
        # what users write do not apply to either (they would refuse spec.nodeName, for one).
        if options.subresource not in (*STATUS_LIKE, "binding"):
            self._default(served, obj)
            strategies.prepare_update(served, obj, old, options.subresource, self.now())
            attempt = Attempt("update", served, namespace, obj, old, options)
            await self.admission.mutate(attempt)
            is_asked = self.admission.is_asked(attempt)
            if is_asked and await self.admission.ask_mutating(attempt):
                self._take_back(served, namespace, name, obj, options)
                self._carry_over(served, obj, old, options)
                self._default(served, obj)
                strategies.prepare_update(served, obj, old, options.subresource, self.now())
                await self.admission.mutate(attempt)
            self._validate(served, obj, old, options)
            extra = self.admission.validate(attempt)
            if is_asked:
                await self.admission.ask_validating(attempt)
                extra = self.admission.validate(attempt)
        elif options.subresource in STATUS_LIKE:
            if not served.custom:
                defaults.apply_status_defaults(obj)
            attempt = Attempt("update", served, namespace, obj, old, options)
            if self.admission.is_asked(attempt):
                if await self.admission.ask_mutating(attempt):
                    self._take_back(served, namespace, name, obj, options)
                    self._carry_over(served, obj, old, options)
                await self.admission.ask_validating(attempt)
            self._check_validations(served, obj, old, options)
        stored = await self._storable(served, obj)
        if options.subresource != "binding":  # where a pod runs is not what it is to do
            self._count_generation(served, obj, old)
        self.ownership.track(served, old, obj, options)
        if obj == old:
            # As upstream, a change that changes nothing writes nothing. What it was compared with
            # may still be on its way to the disk, so wait for that before saying so.
            if not options.dry_run and self.store.get(served.storage, entry.key) is not entry:
                await self._await(self.store.stage())
            return Written(obj, entry.body if served.webhook is None else encode(obj))
        metadata = obj["metadata"]
        waits_for_node = metadata.get("deletionGracePeriodSeconds", 0) > 0
        if (
            "deletionTimestamp" in metadata
            and not waits_for_node
            and not self._is_held(served, obj)
        ):
            return await self._remove(served, entry, obj, options)
        return await self._stage(served, entry.key, obj, entry, options, extra=extra, stored=stored)

    def _check_preconditions(self, served: Served, obj: Object, old: Object) -> None:
        kind = served.kind
        metadata, was = obj["metadata"], old["metadata"]
        if metadata.get("uid") and metadata["uid"] != was["uid"]:
            raise errors.conflict(
                kind.group,
                kind.plural,
                was["name"],
                f"Precondition failed: UID in precondition: {metadata['uid']}, "
                f"UID in object meta: {was['uid']}",
            )
        asked = metadata.get("resourceVersion")
        if asked in (None, "", "0"):
            return
        if asked != was["resourceVersion"]:
            raise errors.conflict(kind.group, kind.plural, was["name"], errors.CHANGED_MEANWHILE)

    def _carry_over(self, served: Served, obj: Object, old: Object, options: Options) -> None:
        """Fields that belong to the server keep their value, and each endpoint its own part."""
        metadata, was = obj["metadata"], old["metadata"]
        for name in (
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generation",
            "resourceVersion",
            "selfLink",
        ):
            if name in was:
                metadata[name] = was[name]
            else:
                metadata.pop(name, None)
        if options.subresource in STATUS_LIKE:
            status = obj.get("status")
            managed = metadata.get("managedFields")
            if served.custom:
                # Only the status may change here; a custom kind's metadata included.
                obj.clear()
                obj.update(decode(encode(old)))
            else:
                for name in [*obj, *old]:
                    if name not in ("metadata", "status"):
                        _copy_field(obj, old, name)
                metadata["ownerReferences"] = was.get("ownerReferences")
                metadata["finalizers"] = was.get("finalizers")
                for name in ("ownerReferences", "finalizers"):
                    if metadata[name] is None:
                        del metadata[name]
            if managed is not None:
                obj["metadata"]["managedFields"] = managed
            if status is None:
                obj.pop("status", None)
            else:
                obj["status"] = status
        elif served.has_status and not strategies.keeps_status(served, options.subresource):
            _copy_field(obj, old, "status")
        self._forbid_new_finalizers(served, obj, old)

    def _forbid_new_finalizers(self, served: Served, obj: Object, old: Object) -> None:
        if "deletionTimestamp" not in old["metadata"]:
            return
        added = set(obj["metadata"].get("finalizers") or ()) - set(
            old["metadata"].get("finalizers") or ()
        )
        if added:
            causes = [
                {
                    "reason": "FieldValueForbidden",
                    "message": "Forbidden: no new finalizers can be added if the object is being "
                    f"deleted, found new finalizers {sorted(added)}",
                    "field": "metadata.finalizers",
                }
            ]
            raise errors.invalid(
                served.kind.group, served.kind.kind, old["metadata"]["name"], causes
            )

    def _count_generation(self, served: Served, obj: Object, old: Object) -> None:
        if not served.counts_generation or served.kind.kind == "PriorityClass":  # 1 for ever
            return
        skipped = ("metadata", "status") if served.has_status else ("metadata",)
        changed = any(
            obj.get(name) != old.get(name) for name in {*obj, *old} if name not in skipped
        )
        if served.kind.kind == "Deployment" and not served.custom:
            # Its annotations go to its ReplicaSets.
            now, before = (item["metadata"].get("annotations") for item in (obj, old))
            changed = changed or now != before
        if changed:
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    # Delete

    async def delete(
        self,
        served: Served,
        namespace: str,
        name: str,
        options: Options | None = None,
        how: DeleteOptions | None = None,
    ) -> Written:
        """Delete, or begin to: finalizers and grace periods make it wait."""
        options = options or Options()
        how = how or DeleteOptions()
        for _ in range(_STALE_RETRIES):
            entry = self.store.head(served.storage, served.key(namespace, name))
            if entry is None:
                raise errors.not_found(served.kind.group, served.kind.plural, name)
            try:
                return await self._delete(served, namespace, entry, options, how)
            except Stale:  # it changed while hooks were asked
                continue
        raise errors.conflict(
            served.kind.group, served.kind.plural, name, "it is changing too quickly; try again"
        )

    async def _delete(
        self, served: Served, namespace: str, entry: Entry, options: Options, how: DeleteOptions
    ) -> Written:
        obj: Object = decode(entry.body)
        key = entry.key
        self.check_preconditions(served, obj, how)
        attempt = Attempt("delete", served, namespace, obj, obj, options)
        self.admission.validate(attempt)
        if self.admission.is_asked(attempt):
            await self.admission.ask_mutating(attempt)
            await self.admission.ask_validating(attempt)
        before = decode(entry.body)
        self._set_finalizers(obj, how.propagation)
        grace = strategies.grace_period(served, obj, how.grace_s)
        if grace == 0 and not self._is_held(served, obj):
            removed = await self._remove(served, entry, obj, options)
            return strategies.shown_removed(served, removed, self.now())
        metadata = obj["metadata"]
        shorter = grace < metadata.get("deletionGracePeriodSeconds", grace + 1)
        if "deletionTimestamp" not in metadata or shorter:
            metadata["deletionTimestamp"] = format_time(self.clock.now() + grace)
            metadata["deletionGracePeriodSeconds"] = grace
            if "generation" in metadata:
                metadata["generation"] += 1
        strategies.prepare_delete(served, obj)
        if obj == before:
            return Written(obj, entry.body)
        return await self._stage(served, key, obj, entry, options)

    def check_preconditions(self, served: Served, obj: Object, how: DeleteOptions) -> None:
        metadata = obj["metadata"]
        for label, asked, found in (
            ("UID", how.uid, metadata["uid"]),
            ("ResourceVersion", how.revision, metadata["resourceVersion"]),
        ):
            if asked and asked != found:
                raise errors.conflict(
                    served.kind.group,
                    served.kind.kind,  # and not the resource, as upstream
                    metadata["name"],
                    f"Precondition failed: {label} in precondition: {asked}, "
                    f"{label} in object meta: {found}",
                )

    def _set_finalizers(self, obj: Object, propagation: str) -> None:
        """Foreground and Orphan deletion wait for the garbage collector by a finalizer."""
        if not propagation:
            return
        finalizers = [
            name
            for name in obj["metadata"].get("finalizers") or ()
            if name not in (FOREGROUND, ORPHAN)
        ]
        if propagation == "Foreground":
            finalizers.append(FOREGROUND)
        elif propagation == "Orphan":
            finalizers.append(ORPHAN)
        if finalizers:
            obj["metadata"]["finalizers"] = finalizers
        else:
            obj["metadata"].pop("finalizers", None)

    def _is_held(self, served: Served, obj: Object) -> bool:
        """Whether a finalizer keeps an object that is to go."""
        if obj["metadata"].get("finalizers"):
            return True
        return served.storage == "namespaces" and bool((obj.get("spec") or {}).get("finalizers"))

    async def _remove(self, served: Served, entry: Entry, obj: Object, options: Options) -> Written:
        if options.dry_run:
            return Written(obj, encode(obj), removed=True)
        return await self._stage(served, entry.key, obj, entry, options, removed=True)

    # Shared

    def _default(self, served: Served, obj: Object) -> None:
        if not served.custom:
            defaults.apply_defaults(obj)

    def _validate(self, served: Served, obj: Object, old: Object | None, options: Options) -> None:
        found = rules.validate(obj, old)
        if found:
            name = obj["metadata"].get("name", "")
            raise errors.invalid(served.kind.group, served.kind.kind, name, rules.causes(found))
        self._check_validations(served, obj, old, options)

    def _check_validations(
        self, served: Served, obj: Object, old: Object | None, options: Options
    ) -> None:
        """The rules in CEL of a custom kind."""
        validations = served.validations
        if validations is None:
            return
        causes = list(validations.check(obj, old, "", options.warnings))
        if causes:
            name = obj["metadata"].get("name", "")
            raise errors.invalid(served.kind.group, served.kind.kind, name, causes)

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
        extra: Sequence[Also] = (),
        stored: Object | None = None,
    ) -> Written:
        if options.dry_run:
            return Written(obj, encode(obj), created=created, removed=removed)
        revision = self.store.next_revision()
        obj["metadata"]["resourceVersion"] = str(revision)
        body = kept = encode(obj)
        if stored is not None:
            # Conversion may touch labels and annotations; the rest is the server's own.
            changed = {k: v for k, v in stored["metadata"].items() if k in conversions.FREE}
            stored["metadata"] = {**obj["metadata"], **changed}
            kept = encode(stored)
        change = (served.storage, Entry(key, revision, kept), previous, removed)
        await self._await(self.store.stage(change, *map(self._along, extra)))
        return Written(obj, body, created=created, removed=removed)

    async def write_back(self, changes: Sequence[Also]) -> None:
        """Store objects that another part of the server computed from their newest version."""
        if changes:
            await self._await(self.store.stage(*map(self._along, changes)))

    def _along(self, also: Also) -> tuple[str, Entry, Entry | None, bool]:
        """An object's next version, as the store takes it."""
        revision = self.store.next_revision()
        also.obj["metadata"]["resourceVersion"] = str(revision)
        entry = Entry(also.entry.key, revision, encode(also.obj))
        return also.storage, entry, also.entry, False

    async def _await(self, done: Any) -> None:
        try:
            await done
        except StoreError as error:
            raise errors.internal(str(error)) from error


def _copy_field(obj: Object, old: Object, name: str) -> None:
    if name in old:
        obj[name] = old[name]
    else:
        obj.pop(name, None)

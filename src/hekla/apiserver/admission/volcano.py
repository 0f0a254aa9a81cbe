"""Volcano's defaulting and validation (`hekla.api.volcano`) on the store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from hekla.api import volcano, wellknown
from hekla.api.rules import causes
from hekla.api.volcano.plugins import job_plugin_names
from hekla.api.volcano.view import queue_of
from hekla.apiserver import errors
from hekla.apiserver.admission.plugin import AdmissionPlugin, Attributes, RelatedWrite
from hekla.apiserver.storage.watch_cache import Entry
from hekla.units.objects import Object

if TYPE_CHECKING:
    from hekla.apiserver.registry.resources import Resources
    from hekla.apiserver.storage.store import Store

QUEUES = "scheduling.volcano.sh/queues"
JOBS = "batch.volcano.sh/jobs"
POD_GROUPS = "scheduling.volcano.sh/podgroups"
_VOLCANO = ".volcano.sh"


class StoreView:
    """Cluster state for Volcano's rules, staged changes included."""

    job_plugins = job_plugin_names()
    scheduler_names = (wellknown.DEFAULT_SCHEDULER,)

    def __init__(self, store: Store, max_pods_per_job: int) -> None:
        self._store = store
        self.max_pods_per_job = max_pods_per_job
        self._decoded: dict[str, tuple[Entry, Object]] = {}

    def _queue(self, entry: Entry) -> Object:
        """Return a decoded queue, cached per version: each job needs the whole tree."""
        known = self._decoded.get(entry.key)
        if known is None or known[0] is not entry:
            known = self._decoded[entry.key] = (entry, msgspec.json.decode(entry.body))
        return known[1]

    def queue(self, name: str) -> Object | None:
        entry = self._store.head(QUEUES, name)
        return None if entry is None else self._queue(entry)

    def queues(self) -> Iterator[Object]:
        return map(self._queue, self._store.heads(QUEUES))

    def namespace(self, name: str) -> Object | None:
        entry = self._store.head("namespaces", name)
        return None if entry is None else msgspec.json.decode(entry.body)

    def workloads(self, queue: str) -> Iterator[Object]:
        """Decode the objects that name the queue somewhere, and yield those that are in it."""
        named = b"" if queue == wellknown.DEFAULT_QUEUE else queue.encode()
        for table in (JOBS, POD_GROUPS):
            for entry in self._store.heads(table):
                if named in entry.body:
                    obj = msgspec.json.decode(entry.body)
                    if queue_of(obj) == queue:
                        yield obj


class Volcano(AdmissionPlugin):
    def __init__(self, resources: Resources, max_pods_per_job: int) -> None:
        super().__init__(resources)
        self._view = StoreView(resources.store, max_pods_per_job)

    def _concerns(self, attributes: Attributes) -> bool:
        return attributes.served.kind.group.endswith(_VOLCANO) or attributes.creates("pods")

    def mutate(self, attributes: Attributes) -> None:
        # An updated job is defaulted again. `kubectl apply` replaces the whole list of tasks and
        # removes defaulted fields; without this, validation would see the tasks change. (Volcano
        # defaults only new jobs, and refuses to apply one again with another size.)
        again = attributes.verb == "update" and attributes.served.storage == JOBS
        if (attributes.verb == "create" or again) and self._concerns(attributes):
            volcano.default(attributes.obj, self._view)

    def validate(self, attributes: Attributes) -> list[RelatedWrite]:
        if self._concerns(attributes):
            field_errors = volcano.first_errors(
                attributes.verb, attributes.obj, attributes.old, self._view
            )
            if field_errors:
                kind, name = attributes.served.kind, attributes.obj["metadata"].get("name", "")
                raise errors.invalid(kind.group, kind.kind, name, causes(field_errors))
        return []

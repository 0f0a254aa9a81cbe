"""Validation of an object before it is sent: admission rules and unknown fields.

An *error* is rejected by the server too. An *unknown field* is dropped by servers without an error,
which is how `minAvaliable: 4` becomes a job without a gang.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from hekla.api import batch, flow, scheduling, volcano, wellknown
from hekla.api.rules.fields import FieldError
from hekla.api.volcano.plugins import job_plugin_names
from hekla.kube.errors import KubeError
from hekla.kube.resources import NAMESPACES, QUEUES
from hekla.kube.sync_client import SyncClient
from hekla.units.objects import Object

MODELS: dict[tuple[str, str], Any] = {
    (wellknown.BATCH_API, "Job"): batch.JobSpec,
    (wellknown.BATCH_API, "CronJob"): batch.CronJobSpec,
    (wellknown.SCHEDULING_API, "Queue"): scheduling.QueueSpec,
    (wellknown.SCHEDULING_API, "PodGroup"): scheduling.PodGroupSpec,
    (wellknown.FLOW_API, "JobFlow"): flow.JobFlowSpec,
    (wellknown.FLOW_API, "JobTemplate"): batch.JobSpec,
}


class ClusterView:
    """The cluster state that validation rules read, fetched on demand."""

    job_plugins = job_plugin_names()

    def __init__(self, client: SyncClient, scheduler: str = wellknown.DEFAULT_SCHEDULER) -> None:
        self._client = client
        self._queues: list[Object] | None = None
        self.scheduler_names: tuple[str, ...] = (scheduler,)

    def queues(self) -> Iterable[Object]:
        if self._queues is None:
            self._queues = list(self._client.list(QUEUES))
        return self._queues

    def queue(self, name: str) -> Object | None:
        return next((q for q in self.queues() if q["metadata"]["name"] == name), None)

    def namespace(self, name: str) -> Object | None:
        return self._client.find(NAMESPACES, name)


def errors(obj: Object, view: volcano.View) -> list[FieldError]:
    """Return the errors of the rules for a new object; the object is not changed."""
    draft = deepcopy(obj)
    draft.setdefault("metadata", {})
    draft.setdefault("spec", {})
    try:
        volcano.default(draft, view)
        return list(volcano.check("create", draft, None, view))
    except (KubeError, TypeError, ValueError, KeyError, AttributeError):
        # Missing permission (to read queues), or a shape that only the schema describes: the server
        # reports both better.
        return []


def unknown_fields(obj: Object) -> Iterator[str]:
    """Yield a message for each unknown field, with the closest known name."""
    model = MODELS.get((obj.get("apiVersion", ""), obj.get("kind", "")))
    if model is not None and isinstance(obj.get("spec"), dict):
        yield from _unknown_below("spec", obj["spec"], model)


def _unknown_below(path: str, value: Any, hint: Any) -> Iterator[str]:
    model, many = _model_of(hint)
    if model is None:
        return
    if many:
        if isinstance(value, list):
            for index, item in enumerate(value):
                yield from _unknown_below(f"{path}[{index}]", item, model)
        return
    if not isinstance(value, dict):
        return
    hints = get_type_hints(model)
    known = {field.encode_name: hints[field.name] for field in msgspec.structs.fields(model)}
    for key, inner in value.items():
        if key in known:
            yield from _unknown_below(f"{path}.{key}", inner, known[key])
        else:
            close = difflib.get_close_matches(str(key), known, 1, 0.6)
            suggestion = f"; did you mean {close[0]!r}?" if close else ""
            yield f"{path}.{key}: unknown field, without effect{suggestion}"


def _model_of(hint: Any) -> tuple[Any, bool]:
    """Return the struct of a type, and whether the type is a list of it."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return hint, False
    if get_origin(hint) is tuple:
        model, _ = _model_of(get_args(hint)[0])
        return model, True
    for choice in get_args(hint) if get_origin(hint) is not dict else ():
        model, many = _model_of(choice)
        if model is not None:
            return model, many
    return None, False

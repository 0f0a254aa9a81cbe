"""SchedulerConfiguration: a configuration that the scheduler would refuse is refused at its write.

Kubernetes has no such check; there the scheduler emits an Event on the ConfigMap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hekla.api import wellknown
from hekla.api.rules import causes
from hekla.api.rules.fields import invalid
from hekla.apiserver import errors
from hekla.apiserver.admission.plugin import AdmissionPlugin, Attributes, RelatedWrite
from hekla.units.objects import Object

if TYPE_CHECKING:
    from hekla.apiserver.registry.resources import Resources

FIELD = f"data[{wellknown.SCHEDULER_CONFIG_KEY}]"


class SchedulerConfiguration(AdmissionPlugin):
    def __init__(self, resources: Resources, problem_of: Callable[[str], str] | None) -> None:
        super().__init__(resources)
        self._problem_of = problem_of

    def validate(self, attributes: Attributes) -> list[RelatedWrite]:
        if self._problem_of is None or attributes.verb == "delete" or not _concerns(attributes):
            return []
        text = _text(attributes.obj)
        if text is None or (attributes.old is not None and _text(attributes.old) == text):
            return []  # labels of a ConfigMap that is wrong already can be changed
        if problem := self._problem_of(text):
            error = invalid(FIELD, "...", f"the scheduler would refuse it: {problem}")
            name = wellknown.SCHEDULER_CONFIG_MAP
            raise errors.invalid("", "ConfigMap", name, causes([error]))
        return []


def _concerns(attributes: Attributes) -> bool:
    return (
        attributes.served.storage == "configmaps"
        and attributes.namespace == wellknown.SYSTEM_NAMESPACE
        and attributes.obj["metadata"].get("name") == wellknown.SCHEDULER_CONFIG_MAP
    )


def _text(config_map: Object) -> str | None:
    text = (config_map.get("data") or {}).get(wellknown.SCHEDULER_CONFIG_KEY)
    return text if isinstance(text, str) else None

"""Priority: resolve a pod's PriorityClass to its value at creation."""

from __future__ import annotations

import msgspec

from hekla.apiserver.admission.plugin import AdmissionPlugin, Attributes, RelatedWrite
from hekla.units.objects import Object

CLASSES = "scheduling.k8s.io/priorityclasses"


class Priority(AdmissionPlugin):
    def mutate(self, attributes: Attributes) -> None:
        if not attributes.creates("pods"):
            return
        spec = attributes.obj["spec"]
        name = spec.get("priorityClassName")
        priority_class = self._class(name) if name else self._default()
        if name and priority_class is None:
            raise attributes.forbid(f"no PriorityClass with name {name} was found")
        value = priority_class["value"] if priority_class else 0
        if spec.get("priority") not in (None, value):
            raise attributes.forbid(
                "the integer value of priority must not be provided in pod spec; priority "
                f"admission controller computed {value} from the given PriorityClass name"
            )
        spec["priority"] = value
        if priority_class:
            spec["priorityClassName"] = priority_class["metadata"]["name"]
        policy = (priority_class or {}).get("preemptionPolicy") or "PreemptLowerPriority"
        if spec.get("preemptionPolicy") not in (None, policy):
            raise attributes.forbid(
                "the string value of PreemptionPolicy must not be provided in pod spec; priority "
                f"admission controller computed {policy} from the given PriorityClass name"
            )
        spec["preemptionPolicy"] = policy

    def validate(self, attributes: Attributes) -> list[RelatedWrite]:
        if attributes.verb != "delete" and attributes.served.storage == CLASSES:
            current = self._default()
            mine = attributes.obj["metadata"]["name"]
            if attributes.obj.get("globalDefault") and current:
                other = current["metadata"]["name"]
                if other != mine:
                    raise attributes.forbid(
                        f"PriorityClass {other} is already marked as default. Only one default "
                        "can exist"
                    )
        return []

    def _class(self, name: str) -> Object | None:
        entry = self.store.head(CLASSES, name)
        return msgspec.json.decode(entry.body) if entry is not None else None

    def _default(self) -> Object | None:
        """Return the class of pods without one: the global default with the lowest value."""
        default: Object | None = None
        for entry in self.store.table(CLASSES).entries.values():
            if b'"globalDefault":true' in entry.body:
                one: Object = msgspec.json.decode(entry.body)
                if default is None or one["value"] < default["value"]:
                    default = one
        return default

"""RuntimeClass: a pod's class must exist; the pod takes its overhead and scheduling."""

from __future__ import annotations

import msgspec

from hekla.api import runtime_classes
from hekla.apiserver.admission.plugin import AdmissionPlugin, Attributes
from hekla.units.objects import Object

CLASSES = "node.k8s.io/runtimeclasses"


class RuntimeClasses(AdmissionPlugin):
    def mutate(self, attributes: Attributes) -> None:
        if not attributes.creates("pods"):
            return
        spec = attributes.obj["spec"]
        found: Object | None = None
        if name := spec.get("runtimeClassName"):
            entry = self.store.head(CLASSES, name)
            if entry is None:
                raise attributes.forbid(f'pod rejected: RuntimeClass "{name}" not found')
            found = msgspec.json.decode(entry.body)
        try:
            runtime_classes.apply_overhead(spec, found)
            if found is not None:
                runtime_classes.apply_scheduling(spec, found)
        except runtime_classes.Refused as error:
            raise attributes.forbid(str(error)) from error

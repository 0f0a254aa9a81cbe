"""RuntimeClass: a pod's class must exist; the pod takes its overhead and scheduling."""

from __future__ import annotations

import msgspec

from hekla.apiserver.admission.plugin import AdmissionPlugin, Attributes
from hekla.units.objects import Object

CLASSES = "node.k8s.io/runtimeclasses"


class RuntimeClasses(AdmissionPlugin):
    def mutate(self, attributes: Attributes) -> None:
        if not attributes.creates("pods"):
            return
        spec = attributes.obj["spec"]
        name = spec.get("runtimeClassName")
        if not name:
            return
        entry = self.store.head(CLASSES, name)
        if entry is None:
            raise attributes.forbid(f'pod rejected: RuntimeClass "{name}" not found')
        runtime_class: Object = msgspec.json.decode(entry.body)
        overhead = (runtime_class.get("overhead") or {}).get("podFixed")
        if overhead:
            if spec.get("overhead") not in (None, {}, overhead):
                raise attributes.forbid(
                    "pod rejected: its overhead is not that of its RuntimeClass"
                )
            spec["overhead"] = dict(overhead)
        placement = runtime_class.get("scheduling") or {}
        wanted = placement.get("nodeSelector") or {}
        selector = {**(spec.get("nodeSelector") or {}), **wanted}
        if any((spec.get("nodeSelector") or {}).get(k, v) != v for k, v in wanted.items()):
            raise attributes.forbid("pod rejected: its nodeSelector contradicts its RuntimeClass")
        if selector:
            spec["nodeSelector"] = selector
        more = [t for t in placement.get("tolerations") or () if t not in _tolerations(spec)]
        if more:
            spec["tolerations"] = [*_tolerations(spec), *more]


def _tolerations(spec: Object) -> list[Object]:
    return spec.get("tolerations") or []

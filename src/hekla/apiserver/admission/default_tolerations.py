"""DefaultTolerationSeconds: pods tolerate an unready or unreachable node for five minutes.

Without these tolerations the taints of a node that is briefly lost would end its pods at once.
"""

from __future__ import annotations

from hekla.api import wellknown
from hekla.apiserver.admission.plugin import AdmissionPlugin, Attributes
from hekla.units.objects import Object

TOLERATION_S = 300
_TAINTS = (wellknown.TAINT_NOT_READY, wellknown.TAINT_UNREACHABLE)


class DefaultTolerations(AdmissionPlugin):
    def mutate(self, attributes: Attributes) -> None:
        if attributes.served.storage != "pods" or attributes.options.subresource:
            return
        spec = attributes.obj["spec"]
        tolerations = spec.get("tolerations")
        if not tolerations:
            spec["tolerations"] = list(map(_toleration, _TAINTS))
            return
        missing = [key for key in _TAINTS if not any(_covers(t, key) for t in tolerations)]
        if missing:
            spec["tolerations"] = [*tolerations, *map(_toleration, missing)]


def _covers(toleration: Object, key: str) -> bool:
    """Whether a toleration is for the key, or for all keys, and for the effect NoExecute."""
    return toleration.get("key") in (key, None, "") and toleration.get("effect") in (
        "NoExecute",
        None,
        "",
    )


def _toleration(key: str) -> Object:
    return {
        "key": key,
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": TOLERATION_S,
    }

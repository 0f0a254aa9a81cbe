"""LimitRanges: default requests and limits of containers, and their minimum and maximum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from hekla.api.pod_resources import pod_limits, pod_requests
from hekla.apiserver.admission.plugin import AdmissionPlugin, Attributes, RelatedWrite
from hekla.units.objects import Object
from hekla.units.quantity import Quantity, parse_quantity


class LimitRanges(AdmissionPlugin):
    def mutate(self, attributes: Attributes) -> None:
        if not attributes.creates("pods"):
            return
        for item in self._items(attributes.namespace, "Container"):
            for container in _containers(attributes.obj):
                _fill(container, item)

    def validate(self, attributes: Attributes) -> list[RelatedWrite]:
        problems: list[str] = []
        if attributes.creates("pods"):
            spec = attributes.obj["spec"]
            for item in self._items(attributes.namespace, "Container"):
                for container in _containers(attributes.obj):
                    given = container.get("resources") or {}
                    problems += _problems(
                        item, "Container", _amounts(given, "requests"), _amounts(given, "limits")
                    )
            for item in self._items(attributes.namespace, "Pod"):
                problems += _problems(item, "Pod", pod_requests(spec), pod_limits(spec))
        elif attributes.creates("persistentvolumeclaims"):
            given = attributes.obj["spec"].get("resources") or {}
            for item in self._items(attributes.namespace, "PersistentVolumeClaim"):
                requests = _amounts(given, "requests")
                problems += _problems(item, "PersistentVolumeClaim", requests, requests)
        if problems:
            raise attributes.forbid(
                problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
            )
        return []

    def _items(self, namespace: str, kind: str) -> Iterator[Object]:
        table = self.store.table("limitranges")
        for key in table.range(f"{namespace}/"):
            limits = msgspec.json.decode(table.entries[key].body)
            for item in (limits.get("spec") or {}).get("limits") or ():
                if item.get("type") == kind:
                    yield item


def _containers(pod: Object) -> Iterator[Object]:
    spec = pod["spec"]
    yield from spec.get("containers") or ()
    yield from spec.get("initContainers") or ()


def _amounts(resources: Object, which: str) -> dict[str, Quantity]:
    return {name: parse_quantity(text) for name, text in (resources.get(which) or {}).items()}


def _fill(container: Object, item: Object) -> None:
    """Apply defaults. A limit without a request also sets the request."""
    resources = container.setdefault("resources", {})
    for which, source in (("limits", "default"), ("requests", "defaultRequest")):
        for name, amount in (item.get(source) or {}).items():
            if which == "requests" and name in (resources.get("limits") or {}):
                own = name not in (item.get("default") or {})
                amount = resources["limits"][name] if own else amount
            resources.setdefault(which, {}).setdefault(name, amount)


def _problems(
    item: Object, kind: str, requests: dict[str, Quantity], limits: dict[str, Quantity]
) -> Iterator[str]:
    for name, text in (item.get("min") or {}).items():
        bound = parse_quantity(text)
        for what, amount in (("request", requests.get(name)), ("limit", limits.get(name))):
            if amount is None and what == "request":
                yield f"minimum {name} usage per {kind} is {text}.  No request is specified"
            elif amount is not None and amount < bound:
                yield f"minimum {name} usage per {kind} is {text}, but {what} is {amount}"
    for name, text in (item.get("max") or {}).items():
        bound = parse_quantity(text)
        for what, amount in (("limit", limits.get(name)), ("request", requests.get(name))):
            if amount is None and what == "limit":
                yield f"maximum {name} usage per {kind} is {text}.  No limit is specified"
            elif amount is not None and amount > bound:
                yield f"maximum {name} usage per {kind} is {text}, but {what} is {amount}"
    for name, text in (item.get("maxLimitRequestRatio") or {}).items():
        yield from _ratio(name, text, kind, requests.get(name), limits.get(name))


def _ratio(
    name: str, text: Any, kind: str, request: Quantity | None, limit: Quantity | None
) -> Iterator[str]:
    if request is None or limit is None or request.is_zero:
        yield (f"{name} max limit to request ratio per {kind} is {text}, but none is given")
    elif limit.milli_value() * 1000 > parse_quantity(text).milli_value() * request.milli_value():
        ratio = limit.milli_value() / request.milli_value()
        yield (
            f"{name} max limit to request ratio per {kind} is {text}, but provided ratio is "
            f"{ratio:f}"
        )

"""bus.volcano.sh/v1alpha1: Command, a request to a controller, which deletes it when handled.

Its fields are at the top level: there is no spec.
"""

from __future__ import annotations

from hekla.api.meta import Object, OwnerReference


class Command(Object):
    action: str = ""
    target: OwnerReference | None = None
    reason: str = ""
    message: str = ""

"""bus.volcano.sh/v1alpha1: Command, a request to a controller that is deleted when taken up.

Its fields sit at the top level: there is no spec.
"""

from __future__ import annotations

from hekla.api.meta import Object, OwnerReference


class Command(Object):
    action: str = ""
    target: OwnerReference | None = None
    reason: str = ""
    message: str = ""

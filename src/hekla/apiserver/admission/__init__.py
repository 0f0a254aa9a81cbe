"""The rules of the house that need to see more than the object itself.

Each controller is a class with `mutate` and `validate`; the chain calls them in order. They run in
the server's own process: nothing leaves the event loop between a decision and the staged write, so
a quota cannot be overrun by two requests at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hekla.apiserver.admission.accounts import ServiceAccounts
from hekla.apiserver.admission.chain import Also, Attempt, Controller
from hekla.apiserver.admission.escalation import Escalation
from hekla.apiserver.admission.limits import LimitRanges
from hekla.apiserver.admission.namespaces import NamespaceLifecycle
from hekla.apiserver.admission.priority import Priority
from hekla.apiserver.admission.quota import Quotas
from hekla.apiserver.admission.volcano import Volcano

if TYPE_CHECKING:
    from hekla.apiserver.resources import Resources

__all__ = ["Admission", "Also", "Attempt", "Controller"]


class Admission:
    """The chain, in the order Kubernetes runs its own: quotas last, when all else is settled."""

    def __init__(self, resources: Resources) -> None:
        self.controllers: list[Controller] = [
            NamespaceLifecycle(resources),
            LimitRanges(resources),
            ServiceAccounts(resources),
            Priority(resources),
            Escalation(resources),
            Volcano(resources),
            Quotas(resources),
        ]

    async def mutate(self, attempt: Attempt) -> None:
        for controller in self.controllers:
            controller.mutate(attempt)

    def validate(self, attempt: Attempt) -> list[Also]:
        also: list[Also] = []
        for controller in self.controllers:
            also += controller.validate(attempt)
        return also

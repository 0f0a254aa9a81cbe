"""The rules of the house that need to see more than the object itself.

Each controller here is a plain class with `mutate` and `validate`; the chain calls them in order.
They run in the server's own process: nothing leaves the event loop between a decision and the
staged write, so a quota cannot be overrun by two requests at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hekla.apiserver import errors
from hekla.apiserver.history import Entry
from hekla.apiserver.registry import Served

if TYPE_CHECKING:
    from hekla.apiserver.resources import Options, Resources

Object = dict[str, Any]


@dataclass(slots=True)
class Attempt:
    """A write on its way in."""

    verb: str  # create, update or delete
    served: Served
    namespace: str
    obj: Object
    old: Object | None
    options: Options

    def forbid(self, why: str) -> errors.StatusError:
        kind = self.served.kind
        name = self.obj["metadata"].get("name", "")
        return errors.forbidden(kind.group, kind.plural, name, why)


@dataclass(slots=True)
class Also:
    """Another object to be changed in the same transaction (a quota's usage, say)."""

    storage: str
    entry: Entry
    obj: Object


class Controller:
    """An admission controller; override what it does."""

    def __init__(self, resources: Resources) -> None:
        self.resources = resources

    def mutate(self, attempt: Attempt) -> None:
        """Change `attempt.obj` before it is validated."""

    def validate(self, attempt: Attempt) -> list[Also]:
        """Refuse by raising; return what must change along with it."""
        return []


class NamespaceLifecycle(Controller):
    """Nothing is created in a namespace that does not exist or is going away."""

    IMMORTAL = frozenset({"default", "kube-system", "kube-public"})

    def mutate(self, attempt: Attempt) -> None:
        if attempt.verb != "create" or not attempt.served.kind.namespaced:
            return
        entry = self.resources.store.head("namespaces", attempt.namespace)
        if entry is None:
            raise errors.not_found("", "namespaces", attempt.namespace)
        if b'"Terminating"' in entry.body and b'"deletionTimestamp"' in entry.body:
            error = attempt.forbid(
                f"unable to create new content in namespace {attempt.namespace} because it is "
                "being terminated"
            )
            assert error.details is not None
            error.details["causes"] = [
                {
                    "reason": "NamespaceTerminating",
                    "message": f"namespace {attempt.namespace} is being terminated",
                    "field": "metadata.namespace",
                }
            ]
            raise error

    def validate(self, attempt: Attempt) -> list[Also]:
        if attempt.verb == "delete" and attempt.served.storage == "namespaces":
            name = attempt.obj["metadata"]["name"]
            if name in self.IMMORTAL:
                raise attempt.forbid("this namespace may not be deleted")
        return []


class Admission:
    """The chain, in the order Kubernetes runs its own."""

    def __init__(self, resources: Resources) -> None:
        self.controllers: list[Controller] = [NamespaceLifecycle(resources)]

    async def mutate(self, attempt: Attempt) -> None:
        for controller in self.controllers:
            controller.mutate(attempt)

    def validate(self, attempt: Attempt) -> list[Also]:
        also: list[Also] = []
        for controller in self.controllers:
            also += controller.validate(attempt)
        return also

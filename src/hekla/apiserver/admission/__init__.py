"""The rules of the house that need to see more than the object itself.

Each controller is a class with `mutate` and `validate`; the chain calls them in order. They run in
the server's own process: nothing leaves the event loop between a decision and the staged write, so
a quota cannot be overrun by two requests at once.

Webhooks and policies that users configured are asked besides, by `ask_mutating` and
`ask_validating`. These wait, and the world moves on meanwhile: whoever calls them validates again
after, and stages on the version that was read before, which the store refuses if it is stale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hekla.apiserver.admission.accounts import ServiceAccounts
from hekla.apiserver.admission.chain import Also, Attempt, Controller
from hekla.apiserver.admission.escalation import Escalation
from hekla.apiserver.admission.expressions import Expressions
from hekla.apiserver.admission.limits import LimitRanges
from hekla.apiserver.admission.namespaces import NamespaceLifecycle
from hekla.apiserver.admission.policies import Policies
from hekla.apiserver.admission.priority import Priority
from hekla.apiserver.admission.quota import Quotas
from hekla.apiserver.admission.review import Review
from hekla.apiserver.admission.runtimes import RuntimeClasses
from hekla.apiserver.admission.volcano import Volcano
from hekla.apiserver.admission.webhooks import Webhooks
from hekla.units.objects import Object

if TYPE_CHECKING:
    from hekla.apiserver.registry import Served
    from hekla.apiserver.resources import Options, Resources


__all__ = ["Admission", "Also", "Attempt", "Controller", "Review"]

# Of a new object, what the server sets after mutating hooks have been asked, as upstream.
_NOT_YET = ("uid", "creationTimestamp", "generation")


class Admission:
    """The chain, in the order Kubernetes runs its own: quotas last, when all else is settled."""

    def __init__(self, resources: Resources) -> None:
        self.controllers: list[Controller] = [
            NamespaceLifecycle(resources),
            LimitRanges(resources),
            ServiceAccounts(resources),
            Priority(resources),
            RuntimeClasses(resources),
            Escalation(resources),
            Expressions(resources),
            Volcano(resources),
            Quotas(resources),
        ]
        self._resources = resources
        self.webhooks = Webhooks(resources)
        self.policies = Policies(resources)

    def follow(self) -> None:
        """Ask what is configured, from now on: not while the server populates its own store."""
        self.webhooks.follow()
        self.policies.follow()

    async def mutate(self, attempt: Attempt) -> None:
        for controller in self.controllers:
            controller.mutate(attempt)

    def validate(self, attempt: Attempt) -> list[Also]:
        also: list[Also] = []
        for controller in self.controllers:
            also += controller.validate(attempt)
        return also

    # What users configured

    def is_asked(self, attempt: Attempt) -> bool:
        """Whether anybody outside this chain has a say in it."""
        options = attempt.options
        if options.reviewed:
            return False
        return self.has_say(attempt.verb.upper(), attempt.served, options.subresource)

    def has_say(self, operation: str, served: Served, subresource: str) -> bool:
        return self.webhooks.concern(operation, served, subresource) or self.policies.concern(
            operation, served, subresource
        )

    async def ask_mutating(self, attempt: Attempt) -> bool:
        """Let hooks change `attempt.obj`; whether they did. It is then in the version asked for."""
        review = await self._review(attempt)
        hidden = {}
        if attempt.verb == "create" and review.obj is not None:
            metadata = review.obj["metadata"]
            names = (*_NOT_YET, "name") if attempt.is_name_generated else _NOT_YET
            hidden = {name: metadata.pop(name) for name in names if name in metadata}
            if attempt.is_name_generated:
                review.name = ""
        changed = await self.webhooks.mutate(review)
        if review.obj is not None:
            metadata = review.obj.setdefault("metadata", {})
            if isinstance(metadata, dict):
                metadata.update(hidden)
            if changed:
                attempt.obj.clear()
                attempt.obj.update(review.obj)
        return changed

    async def ask_validating(self, attempt: Attempt) -> None:
        review = await self._review(attempt)
        await self.policies.validate(review)
        await self.webhooks.validate(review)

    async def _review(self, attempt: Attempt) -> Review:
        served, verb = attempt.served, attempt.verb
        shown = self._resources.in_version
        return Review(
            verb.upper(),
            served,
            attempt.namespace,
            attempt.obj["metadata"].get("name", ""),
            None if verb == "delete" else await shown(served, attempt.obj),
            None if attempt.old is None else await shown(served, attempt.old),
            attempt.options,
            attempt.options.subresource,
            _how(verb, attempt.options),
        )

    async def review_other(
        self,
        operation: str,
        served: Served,
        name: str,
        namespace: str,
        subresource: str,
        obj: Object,
        options: Options,
        old: Object | None = None,
    ) -> Object:
        """A write to a subresource that exchanges another kind: the object as hooks leave it."""
        if not self.has_say(operation, served, subresource):
            return obj
        how = {} if operation == "CONNECT" else _how(operation.lower(), options)
        review = Review(operation, served, namespace, name, obj, old, options, subresource, how)
        await self.webhooks.mutate(review)
        await self.policies.validate(review)
        await self.webhooks.validate(review)
        return obj


def _how(verb: str, options: Options) -> Object:
    """The options object of a request, as hooks are shown it."""
    how: Object = {"kind": f"{verb.capitalize()}Options", "apiVersion": "meta.k8s.io/v1"}
    if options.dry_run:
        how["dryRun"] = ["All"]
    if verb != "delete":
        how["fieldManager"] = options.manager
        how["fieldValidation"] = options.field_validation
    return how

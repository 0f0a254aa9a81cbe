"""Nobody can give away, by a role or a binding, rights they do not have themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hekla.apiserver.admission.chain import Also, Attempt, Controller
from hekla.apiserver.rbac import GROUP, Authorizer

if TYPE_CHECKING:
    from hekla.apiserver.resources import Resources


class Escalation(Controller):
    def __init__(self, resources: Resources) -> None:
        super().__init__(resources)
        self._authorizer = Authorizer(resources.store)

    def validate(self, attempt: Attempt) -> list[Also]:
        if attempt.verb != "delete" and attempt.served.kind.group == GROUP:
            user = attempt.options.user
            self._authorizer.check_escalation(user, attempt.obj, attempt.namespace)
        return []

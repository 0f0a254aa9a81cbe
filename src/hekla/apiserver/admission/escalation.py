"""Privilege escalation check: a user cannot grant rights that the user does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hekla.apiserver.admission.plugin import AdmissionPlugin, Attributes, RelatedWrite
from hekla.apiserver.auth.rbac import GROUP, Authorizer

if TYPE_CHECKING:
    from hekla.apiserver.registry.resources import Resources


class Escalation(AdmissionPlugin):
    def __init__(self, resources: Resources, authorizer: Authorizer) -> None:
        super().__init__(resources)
        self._authorizer = authorizer

    def validate(self, attributes: Attributes) -> list[RelatedWrite]:
        if attributes.verb != "delete" and attributes.served.kind.group == GROUP:
            user = attributes.options.user
            self._authorizer.check_escalation(
                user, attributes.obj, attributes.old, attributes.namespace
            )
        return []

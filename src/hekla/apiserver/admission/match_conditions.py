"""Match conditions, and the CEL variables of match conditions and policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hekla.apiserver import cel
from hekla.apiserver.admission.matching import AdmissionRequest
from hekla.units.objects import Object

VARIABLES = ("object", "oldObject", "request")


def request_variable(review: AdmissionRequest) -> Object:
    """Return the variable `request`: an AdmissionRequest without its objects."""
    group, version, kind = review.kind
    requested = review.served.kind
    variables: Object = {
        "kind": {"group": group, "version": version, "kind": kind},
        "resource": {
            "group": requested.group,
            "version": requested.version,
            "resource": requested.plural,
        },
        "name": review.name,
        "namespace": review.namespace,
        "operation": review.operation,
        "userInfo": user_info(review),
        "dryRun": review.options.dry_run,
        "options": review.operation_options,
    }
    variables["requestKind"] = variables["kind"]
    variables["requestResource"] = variables["resource"]
    if review.subresource:
        variables["subResource"] = variables["requestSubResource"] = review.subresource
    return variables


def user_info(review: AdmissionRequest) -> Object:
    user = review.options.user
    info: Object = {"username": user.name, "groups": list(user.groups)}
    if user.uid:
        info["uid"] = user.uid
    if user.extra:
        info["extra"] = {name: list(values) for name, values in user.extra.items()}
    return info


def variables(review: AdmissionRequest) -> Object:
    return {"object": review.obj, "oldObject": review.old, "request": request_variable(review)}


@dataclass(frozen=True, slots=True)
class MatchConditions:
    """CEL conditions that must all be true for a webhook or policy to be evaluated."""

    programs: tuple[tuple[str, cel.Program], ...] = ()

    @classmethod
    def read(
        cls, conditions: Sequence[Mapping[str, Any]], variables: Sequence[str] = VARIABLES
    ) -> MatchConditions:
        return cls(
            tuple((c["name"], cel.compile(c["expression"], variables)) for c in conditions or ())
        )

    def hold(self, values: Mapping[str, Any]) -> bool:
        """Return whether all hold; a false one decides even if others fail, as upstream."""
        failures = []
        for name, program in self.programs:
            try:
                if not program.holds(values):
                    return False
            except cel.Failed as error:
                failures.append(f'matchCondition "{name}": {error}')
        if failures:
            raise cel.Failed("; ".join(failures))
        return True

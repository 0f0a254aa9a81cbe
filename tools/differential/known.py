"""Accepted differences, each with its reason in docs/conformance.md (`## Lasting differences`).

A difference is accepted only if the step, the path and both values match the rule; the rest of the
response is still compared.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tools.differential.normal import Difference
from tools.differential.steps import Step


@dataclass(frozen=True, slots=True)
class Known:
    """One accepted difference: patterns that match it, and the heading of its reason."""

    title: str
    label: str = ""
    plural: str = ""
    path: str = ""
    real: str = ""
    ours: str = ""

    def excuses(self, step: Step, found: Difference) -> bool:
        pairs = (
            (self.label, step.label),
            (self.plural, step.sample.plural),
            (self.path, found.path),
            (self.real, str(found.real)),
            (self.ours, str(found.ours)),
        )
        return all(re.search(pattern, text, re.S) for pattern, text in pairs if pattern)


_TEXT = r"^\.body\.(message|details\.causes\[\d+\]\.message)$"

KNOWN: tuple[Known, ...] = (
    # Code, reason, and the fields and reasons of all causes are still compared.
    Known("Error messages have their own wording", path=_TEXT, real=".", ours=r"^(?!\(absent\)).+"),
    Known("Error messages have their own wording", path=r"columnDefinitions\[\d+\]\.description$"),
    Known(
        "Other sets of validation causes",
        path=r"^\.body\.details\.causes$",
        real=r"^\[\{",
        ours=r"^\[\{",
    ),
    Known(
        "Other sets of validation causes",
        label="^apply partial",
        path=r"^\.body\.details\.causes\[\d+\]\.field$",
    ),
    Known("Error messages have their own wording", path=r"^\.warnings\[\d+\]$"),
    Known(
        "Other sets of validation causes",
        plural="^persistentvolumeclaims$",
        path=r"^\.body\.details\.causes\[\d+\]\.field$",
        real="^spec$",
    ),
    Known(
        "Patches with a result of the wrong type",
        label="^bad patch: labels",
        path=r"(code|reason|details)$",
        real="^(422|Invalid|\\{'causes)",
        ours=r"^(400|BadRequest|\(absent\))$",
    ),
    Known(
        "Errors for unknown paths of custom kinds",
        label="^odd",
        plural="^(widgets|podgroups)$",
    ),
    Known(
        "Errors for unknown paths of custom kinds",
        label="wrong kind",
        plural="^(widgets|podgroups)$",
        path="(code|reason|details)$",
        real="^(422|Invalid|\\{)",
        ours=r"^(400|BadRequest|\(absent\))$",
    ),
    # Upstream accepts it in a dry run, and names a taken name first.
    Known("Invalid resourceVersions are client errors", label="bad create: resourceVersion given"),
    Known(
        "Patches with a result of the wrong type",
        label="^bad patch: labels",
        path=r"^\.body\.details\.",
    ),
    Known(
        "Pod labels are not copied to the Job",
        label="(remove /metadata/labels|merge patch removing)",
        plural="^jobs$",
        path=r"^\.body\.metadata\.(managedFields|resourceVersion)",
    ),
    Known(
        "Other sets of validation causes",
        label="long name",
        path=r"^\.body\.details\.causes\[\d+\]\.field$",
    ),
    Known("Finalizers need a domain", label="bad finalizer", plural="^leases$"),
    Known(
        "Quota usage is updated at once",
        plural="^resourcequotas$",
        path=r"^\.body\.rows\[\d+\]\.cells\[\d+\]$",
        real="^$",
    ),
    Known(
        "Other sets of validation causes",
        plural="^(services|deployments|persistentvolumeclaims)$",
        path=r"^\.body\.details\.causes\[\d+\]\.(field|reason)$",
    ),
    Known(
        "Empty fields are omitted",
        path=r"^\.body\.spec\.replicas$",
        real=r"^\(absent\)$",
        ours="^0$",
    ),
    Known(
        "Empty fields are omitted",
        label="get unacceptable",
        path=r"^\.body\.details$",
        real=r"^\(absent\)$",
        ours=r"^\{\}$",
    ),
    Known(
        "POST to the path of an object",
        label="create at a name",
        plural="^(widgets|podgroups)$",
    ),
    Known(
        "List items have kind and apiVersion",
        label="^(list|delete collection|bad list)",
        path=r"^\.body\.items\[\d+\]\.(kind|apiVersion)$",
        real=r"^\(absent\)$",
    ),
    Known(
        "Invalid resourceVersions are client errors",
        label='(resourceVersion given|resourceVersion": "abc|bad update: version)',
        path=r"(code|reason|details)$",
        real=r"^(500|\(absent\)|InternalError|409|AlreadyExists|\{.*)$",
        ours=r"^(400|BadRequest|409|Conflict|\{)",
    ),
    Known(
        "Pod labels are not copied to the Job",
        plural="^jobs$",
        path=r"^\.body\.(items\[\d+\]\.|rows\[\d+\]\.object\.)?metadata\.labels",
        real="(uid|absent|^[abc]$|controller-uid)",
    ),
    Known("Deleting a Job deletes its pods", label="^delete", plural="^jobs$", path="warnings"),
    Known(
        "Empty fields are omitted",
        path=r"^\.body\.(items|rows)$",
        real="^None$",
        ours=r"^\[\]$",
    ),
    Known(
        "Empty fields are omitted",
        path=r"^\.body(\.items\[\d+\])?\.(spec|rules|subjects|value|metadata\.continue)$",
        real=r"^(None|0|\{\}|\{'limits': None\}|)$",
        ours=r"^\(absent\)$",
    ),
)


def excuse(step: Step, found: Difference) -> Known | None:
    return next((known for known in KNOWN if known.excuses(step, found)), None)

"""Differences that stay, each with its reason in docs/conformance.md (`## Lasting differences`).

A difference is excused only when the step, the place and both values are what the rule says: the
rest of the answer is still compared.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tools.differential.normal import Difference
from tools.differential.steps import Step


@dataclass(frozen=True, slots=True)
class Known:
    """One lasting difference: patterns of what it looks like, and the heading of its reason."""

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
    Known("The wording of refusals is ours", path=_TEXT, real=".", ours=r"^(?!\(absent\)).+"),
    Known("The wording of refusals is ours", path=r"columnDefinitions\[\d+\]\.description$"),
    Known(
        "Not every broken rule is named",
        path=r"^\.body\.details\.causes$",
        real=r"^\[\{",
        ours=r"^\[\{",
    ),
    Known(
        "Not every broken rule is named",
        label="^apply partial",
        path=r"^\.body\.details\.causes\[\d+\]\.field$",
    ),
    Known(
        "Not every warning is given",
        label="bad finalizer",
        path=r"^\.warnings$",
        real="prefer a domain-qualified finalizer name",
        ours=r"^\[\]$",
    ),
    Known(
        "Not every warning is given",
        path=r"^\.warnings$",
        real="duplicate port definition",
        ours=r"^\[\]$",
    ),
    Known(
        "Not every broken rule is named",
        plural="^persistentvolumeclaims$",
        path=r"^\.body\.details\.causes\[\d+\]\.field$",
        real="^spec$",
    ),
    Known(
        "Values that cannot be read",
        label="create unknown field",
        plural="^secrets$",
        path=r"(code|reason|details|warnings)$",
    ),
    Known(
        "A patch that breaks a type",
        label="^bad patch: labels",
        path=r"(code|reason|details)$",
        real="^(422|Invalid|\\{'causes)",
        ours=r"^(400|BadRequest|\(absent\))$",
    ),
    Known(
        "Paths that lead nowhere",
        label="^odd",
        plural="^(widgets|podgroups)$",
    ),
    Known(
        "Paths that lead nowhere",
        label="wrong kind",
        plural="^(widgets|podgroups)$",
        path="(code|reason|details)$",
        real="^(422|Invalid|\\{)",
        ours=r"^(400|BadRequest|\(absent\))$",
    ),
    # Upstream accepts it in a dry run, and names a taken name first.
    Known("Nonsense is the client's mistake", label="bad create: resourceVersion given"),
    Known("A patch that breaks a type", label="^bad patch: labels", path=r"^\.body\.details\."),
    Known(
        "A Job's own labels",
        label="(remove /metadata/labels|merge patch removing)",
        plural="^jobs$",
        path=r"^\.body\.metadata\.(managedFields|resourceVersion)",
    ),
    Known(
        "Not every broken rule is named",
        label="long name",
        path=r"^\.body\.details\.causes\[\d+\]\.field$",
    ),
    # An amount written in another way is a change here.
    Known(
        "Quantities stay as they were written",
        path=r"\.managedFields\[\d+\]\.fieldsV1\..*f:(limits|requests)\.f:\w+$",
    ),
    Known("Finalizers need a domain", label="bad finalizer", plural="^leases$"),
    Known(
        "Quotas are counted at once",
        plural="^resourcequotas$",
        path=r"^\.body\.rows\[\d+\]\.cells\[\d+\]$",
        real="^$",
    ),
    Known(
        "Not every broken rule is named",
        plural="^(services|deployments|persistentvolumeclaims)$",
        path=r"^\.body\.details\.causes\[\d+\]\.(field|reason)$",
    ),
    Known(
        "Services get no address",
        plural="^services$",
        path=r"^\.body\.rows\[\d+\]\.cells\[\d+\]$",
        real="^IP$",
    ),
    Known(
        "Values that cannot be read",
        label="label of a number",
        plural="^(widgets|podgroups)$",
        path="(code|reason|details)$",
        real=r"^(400|BadRequest|\(absent\))$",
        ours="^(422|Invalid|[{])",
    ),
    Known(
        "Empty parts are left out",
        path=r"^\.body\.spec\.replicas$",
        real=r"^\(absent\)$",
        ours="^0$",
    ),
    Known(
        "Empty parts are left out",
        label="get unacceptable",
        path=r"^\.body\.details$",
        real=r"^\(absent\)$",
        ours=r"^\{\}$",
    ),
    Known(
        "A POST to an object's own path",
        label="create at a name",
        plural="^(widgets|podgroups)$",
    ),
    Known(
        "Services get no address",
        plural="^services$",
        path=r"\.(f:)?(clusterIPs?|ipFamilies|ipFamilyPolicy)$",
    ),
    Known(
        "Items of a list name their kind",
        label="^(list|delete collection|bad list)",
        path=r"^\.body\.items\[\d+\]\.(kind|apiVersion)$",
        real=r"^\(absent\)$",
    ),
    Known(
        "Nonsense is the client's mistake",
        label='(resourceVersion given|resourceVersion": "abc|bad update: version)',
        path=r"(code|reason|details)$",
        real=r"^(500|\(absent\)|InternalError|409|AlreadyExists|\{.*)$",
        ours=r"^(400|BadRequest|409|Conflict|\{)",
    ),
    Known(
        "Quantities stay as they were written",
        path=r"\.(requests|limits|hard|used|max)\.\w+$",
        real=r"^\d+(m|Mi|Gi)?$",
        ours=r"^[\d.]+(m|Mi|Gi)?$",
    ),
    Known(
        "A Job's own labels",
        plural="^jobs$",
        path=r"^\.body\.(items\[\d+\]\.)?metadata\.labels",
        real="(uid|absent|^[abc]$|controller-uid)",
    ),
    Known("Deleting a Job takes its pods along", label="^delete", plural="^jobs$", path="warnings"),
    Known(
        "Empty parts are left out",
        path=r"^\.body\.(items|rows)$",
        real="^None$",
        ours=r"^\[\]$",
    ),
    Known(
        "Empty parts are left out",
        path=r"^\.body(\.items\[\d+\])?\.(spec|rules|subjects|value|metadata\.continue)$",
        real=r"^(None|0|\{\}|\{'limits': None\}|)$",
        ours=r"^\(absent\)$",
    ),
)


def excuse(step: Step, found: Difference) -> Known | None:
    return next((known for known in KNOWN if known.excuses(step, found)), None)

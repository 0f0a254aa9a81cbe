"""Sub-groups: pods of a job with equal labels that are placed together, gangs within a gang.

A policy of the PodGroup selects pods by a selector and groups them by the values of its
`matchLabelKeys`. Policies are tried in order; a pod that none selects belongs to the job alone. As
in Volcano, a policy without keys selects no pod, and a pod without one of the labels is not
selected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hekla.api.scheduling import NetworkTopology, SubGroupPolicy
from hekla.units.selectors import LabelSelector, SelectorError


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """One parsed entry of `subGroupPolicy`."""

    name: str
    size: int
    """The number of members that make a sub-group ready."""
    least: int
    """The number of sub-groups that must be ready."""
    keys: tuple[str, ...]
    selector: LabelSelector | None
    topology: NetworkTopology | None


@dataclass(frozen=True, slots=True, eq=False)
class SubGroup:
    """Pods with equal label values under a policy."""

    policy: Policy
    values: tuple[str, ...]
    """The label values. Names are for display only: `1-2` and `3` look like `1` and `2-3`."""
    number: int

    @property
    def name(self) -> str:
        return f"{self.policy.name}-{'-'.join(self.values)}"

    @property
    def key(self) -> tuple[Policy, tuple[str, ...]]:
        return (self.policy, self.values)

    @property
    def order(self) -> tuple[int, str, tuple[str, ...]]:
        return (self.number, self.name, self.values)


def policies_of(stated: Sequence[SubGroupPolicy]) -> tuple[tuple[Policy, ...], list[str]]:
    """Return the policies of a PodGroup, and the problems of invalid ones."""
    found: list[Policy] = []
    problems: list[str] = []
    for one in stated:
        selector = None
        try:
            if one.label_selector is not None:
                selector = one.label_selector.compiled()
        except SelectorError as error:
            problems.append(f"subGroupPolicy {one.name!r} is left out: {error}")
            continue
        size = 1 if one.sub_group_size is None else max(one.sub_group_size, 1)
        least = max(one.min_sub_groups or 0, 0)
        keys = tuple(one.match_label_keys)
        if not keys:
            problems.append(f"subGroupPolicy {one.name!r} has no matchLabelKeys and takes no pod")
        found.append(Policy(one.name, size, least, keys, selector, one.network_topology))
    return tuple(found), problems


def subgroup_of(policies: Sequence[Policy], labels: Mapping[str, str]) -> SubGroup | None:
    """Return the sub-group of a pod with these labels."""
    for policy in policies:
        if policy.selector is not None and not policy.selector.matches(labels):
            continue
        values = tuple(labels.get(key, "") for key in policy.keys)
        if values and all(values):
            number = int(values[0]) if values[0].isdecimal() else 0
            return SubGroup(policy, values, number)
    return None

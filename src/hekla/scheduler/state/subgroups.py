"""Gangs within a gang: pods of a job that agree on some labels and must come together.

A policy of the PodGroup picks pods by a selector and parts them by the values of its
`matchLabelKeys`. Policies are tried in order; a pod that none takes belongs to the job alone. As in
Volcano, a policy without keys takes nobody, and a pod that lacks one of the labels is not taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hekla.api.scheduling import NetworkTopology, SubGroupPolicy
from hekla.units.selectors import LabelSelector, SelectorError


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """One entry of `subGroupPolicy`, ready for use."""

    name: str
    size: int
    """How many members make a group ready."""
    least: int
    """How many groups must be ready for the job to be."""
    keys: tuple[str, ...]
    selector: LabelSelector | None
    topology: NetworkTopology | None


@dataclass(frozen=True, slots=True, eq=False)
class SubGroup:
    """Pods that came out equal under a policy."""

    policy: Policy
    values: tuple[str, ...]
    """Of its labels. Names are for reading: `1-2` and `3` read like `1` and `2-3`."""
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
    """The policies of a PodGroup, and what is wrong with those that cannot be used."""
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
    """The group that a pod with these labels is in."""
    for policy in policies:
        if policy.selector is not None and not policy.selector.matches(labels):
            continue
        values = tuple(labels.get(key, "") for key in policy.keys)
        if values and all(values):
            number = int(values[0]) if values[0].isdecimal() else 0
            return SubGroup(policy, values, number)
    return None

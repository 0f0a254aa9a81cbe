"""topology.volcano.sh/v1alpha1: HyperNode, a network domain such as the nodes of one switch.

Note: a lower tier is closer together. Patch, and never write a model back.
"""

from __future__ import annotations

from msgspec import field

from hekla.api.meta import Condition, LabelSelector, Model, Object


class ExactMatch(Model):
    name: str = ""


class RegexMatch(Model):
    pattern: str = ""


class MemberSelector(Model):
    """Exactly one is set; the CRD's rules enforce it."""

    exact_match: ExactMatch | None = None
    regex_match: RegexMatch | None = None
    label_match: LabelSelector | None = None


class Member(Model):
    type: str = ""
    selector: MemberSelector = field(default_factory=MemberSelector)


class HyperNodeSpec(Model):
    tier: int = 0
    tier_name: str = ""
    members: tuple[Member, ...] = ()


class HyperNodeStatus(Model):
    conditions: tuple[Condition, ...] = ()
    node_count: int = 0


class HyperNode(Object):
    spec: HyperNodeSpec = field(default_factory=HyperNodeSpec)
    status: HyperNodeStatus = field(default_factory=HyperNodeStatus)

"""scheduling.volcano.sh/v1beta1: Queue and PodGroup.

Note: a PodGroup has no status subresource, so its status is written with the object; patch, and
never write a model back.
"""

from __future__ import annotations

from msgspec import field

from hekla.api.meta import LabelSelector, Model, Object, ResourceList


class NetworkTopology(Model):
    """At most one of the two tiers is set; admission rejects both."""

    mode: str = "hard"
    highest_tier_allowed: int | None = None
    highest_tier_name: str = ""


class SubGroupPolicy(Model):
    """Pods that match the selector and have equal `match_label_keys` form one subgroup."""

    name: str = ""
    network_topology: NetworkTopology | None = None
    sub_group_size: int | None = None
    min_sub_groups: int | None = None
    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()


class PodGroupSpec(Model):
    min_member: int = 0
    min_task_member: dict[str, int] = field(default_factory=dict)
    queue: str = ""
    priority_class_name: str = ""
    min_resources: ResourceList | None = None
    """None admits the group unconditionally; an empty map requests nothing."""
    network_topology: NetworkTopology | None = None
    sub_group_policy: tuple[SubGroupPolicy, ...] = ()


class PodGroupCondition(Model):
    type: str = ""
    status: str = ""
    transition_id: str = field(default="", name="transitionID")
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""


class PodGroupStatus(Model):
    phase: str = ""
    conditions: tuple[PodGroupCondition, ...] = ()
    running: int = 0
    succeeded: int = 0
    failed: int = 0


class PodGroup(Object):
    spec: PodGroupSpec = field(default_factory=PodGroupSpec)
    status: PodGroupStatus = field(default_factory=PodGroupStatus)


class ExtendCluster(Model):
    name: str = ""
    weight: int = 0
    capacity: ResourceList = field(default_factory=dict)


class Guarantee(Model):
    resource: ResourceList = field(default_factory=dict)


class NodeGroupAffinity(Model):
    required: tuple[str, ...] = field(
        default=(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[str, ...] = field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class QueueAffinity(Model):
    node_group_affinity: NodeGroupAffinity | None = None
    node_group_anti_affinity: NodeGroupAffinity | None = None


class QueueSpec(Model):
    weight: int = 1
    capability: ResourceList = field(default_factory=dict)
    reclaimable: bool | None = None
    extend_clusters: tuple[ExtendCluster, ...] = ()
    guarantee: Guarantee = field(default_factory=Guarantee)
    affinity: QueueAffinity | None = None
    type: str = ""
    parent: str = ""
    deserved: ResourceList = field(default_factory=dict)
    priority: int = 0
    dequeue_strategy: str = ""


class Reservation(Model):
    nodes: tuple[str, ...] = ()
    resource: ResourceList = field(default_factory=dict)


class QueueStatus(Model):
    state: str = ""
    unknown: int = 0
    pending: int = 0
    running: int = 0
    inqueue: int = 0
    completed: int = 0
    reservation: Reservation = field(default_factory=Reservation)
    allocated: ResourceList | None = None
    """Volcano's scheduler always writes it, as null if nothing is allocated."""


class Queue(Object):
    spec: QueueSpec = field(default_factory=QueueSpec)
    status: QueueStatus = field(default_factory=QueueStatus)

"""The part of a pod that scheduling reads, decoded straight from the wire.

Smaller than `hekla.api.pods.Pod` by design: a scheduler sees every pod of the cluster, and typed
decoding of only these fields is several times cheaper in time and memory than the whole object.
"""

from __future__ import annotations

import msgspec
from msgspec import field

from hekla.api.meta import Model, ResourceList
from hekla.api.pods import (
    Affinity,
    ContainerPort,
    PodSchedulingGate,
    Toleration,
    TopologySpreadConstraint,
)


class Meta(Model):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class Resources(Model):
    requests: ResourceList | None = None
    limits: ResourceList | None = None


class Container(Model):
    image: str = ""
    resources: Resources | None = None
    ports: tuple[ContainerPort, ...] | None = None
    restart_policy: str = ""


class Claim(Model):
    claim_name: str = ""


class Volume(Model):
    name: str = ""
    persistent_volume_claim: Claim | None = None
    ephemeral: dict[str, object] | None = None


class PodShape(Model):
    """The fields that decide where a pod can be placed: equal shapes are one task class."""

    containers: tuple[Container, ...] | None = ()
    init_containers: tuple[Container, ...] | None = ()
    overhead: ResourceList | None = None
    resources: Resources | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] | None = None
    volumes: tuple[Volume, ...] | None = None
    priority: int | None = None


class PodSpec(PodShape):
    node_name: str = ""
    scheduler_name: str = ""
    priority_class_name: str = ""
    preemption_policy: str | None = None
    scheduling_gates: tuple[PodSchedulingGate, ...] | None = None


class Condition(Model):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class PodStatus(Model):
    phase: str = ""
    conditions: tuple[Condition, ...] | None = None
    nominated_node_name: str = ""
    qos_class: str = ""
    start_time: str | None = None


class Pod(Model):
    metadata: Meta = field(default_factory=Meta)
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)


_shape_fields = PodShape.__struct_fields__
_encoder = msgspec.json.Encoder(order="deterministic")


def shape_of(spec: PodSpec) -> PodShape:
    """Return the shape of a pod, without volumes that do not restrict its node."""
    volumes = tuple(
        volume
        for volume in spec.volumes or ()
        if volume.persistent_volume_claim is not None or volume.ephemeral is not None
    )
    values = {name: getattr(spec, name) for name in _shape_fields}
    values["volumes"] = volumes or None
    return PodShape(**values)


def signature(shape: PodShape) -> bytes:
    """Return equal bytes for equal shapes."""
    return _encoder.encode(shape)

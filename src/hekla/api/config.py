"""config.volcano.sh/v1alpha1: ColocationConfiguration, settings for pods that share a node.

Note: a missing selector matches no pod, an empty one matches every pod.
"""

from __future__ import annotations

from msgspec import field

from hekla.api.meta import Condition, LabelSelector, Model, Object


class MemoryQos(Model):
    high_ratio: int = 100
    low_ratio: int = 0
    min_ratio: int = 0


class ColocationConfigurationSpec(Model):
    selector: LabelSelector | None = None
    memory_qos: MemoryQos | None = None


class ColocationConfigurationStatus(Model):
    conditions: tuple[Condition, ...] = ()


class ColocationConfiguration(Object):
    spec: ColocationConfigurationSpec = field(default_factory=ColocationConfigurationSpec)
    status: ColocationConfigurationStatus = field(default_factory=ColocationConfigurationStatus)

"""shard.volcano.sh/v1alpha1: NodeShard, the nodes of the scheduler of the same name.

The sharding controller owns the spec, the scheduler owns the status.
"""

from __future__ import annotations

from msgspec import field

from hekla.api.meta import Model, Object


class NodeShardSpec(Model):
    nodes_desired: tuple[str, ...] = ()


class NodeShardStatus(Model):
    last_update_time: str | None = None
    nodes_in_use: tuple[str, ...] = ()
    nodes_to_remove: tuple[str, ...] = ()
    nodes_to_add: tuple[str, ...] = ()


class NodeShard(Object):
    spec: NodeShardSpec = field(default_factory=NodeShardSpec)
    status: NodeShardStatus = field(default_factory=NodeShardStatus)

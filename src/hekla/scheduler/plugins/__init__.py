"""The built-in plugins, one file or folder each. They use the public plugin API."""

from __future__ import annotations

from hekla.scheduler.framework.registry import Registry
from hekla.scheduler.plugins.binpack import Binpack
from hekla.scheduler.plugins.capacity import Capacity
from hekla.scheduler.plugins.cdp import Cdp
from hekla.scheduler.plugins.conformance import Conformance
from hekla.scheduler.plugins.deviceshare.plugin import DeviceShare
from hekla.scheduler.plugins.drf.plugin import Drf
from hekla.scheduler.plugins.extender import Extender
from hekla.scheduler.plugins.fairshare import Fairshare
from hekla.scheduler.plugins.gang import Gang
from hekla.scheduler.plugins.network_topology_aware import NetworkTopologyAware
from hekla.scheduler.plugins.nodegroup import NodeGroup
from hekla.scheduler.plugins.nodeorder import NodeOrder
from hekla.scheduler.plugins.numa_aware import NumaAware
from hekla.scheduler.plugins.overcommit import Overcommit
from hekla.scheduler.plugins.pdb import Pdb
from hekla.scheduler.plugins.predicates.plugin import Predicates
from hekla.scheduler.plugins.priority import Priority
from hekla.scheduler.plugins.proportion import Proportion
from hekla.scheduler.plugins.rescheduling.plugin import Rescheduling
from hekla.scheduler.plugins.resource_strategy_fit import ResourceStrategyFit
from hekla.scheduler.plugins.resourcequota import ResourceQuota
from hekla.scheduler.plugins.sla import Sla
from hekla.scheduler.plugins.task_topology.plugin import TaskTopology
from hekla.scheduler.plugins.tdm import Tdm
from hekla.scheduler.plugins.usage import Usage


def builtin() -> Registry:
    """Return a registry with the built-in plugins, to which others can be added."""
    return Registry(
        (
            Binpack,
            Capacity,
            Cdp,
            Conformance,
            DeviceShare,
            Drf,
            Extender,
            Fairshare,
            Gang,
            NetworkTopologyAware,
            NodeGroup,
            NodeOrder,
            NumaAware,
            Overcommit,
            Pdb,
            Predicates,
            Priority,
            Proportion,
            Rescheduling,
            ResourceQuota,
            ResourceStrategyFit,
            Sla,
            TaskTopology,
            Tdm,
            Usage,
        )
    )

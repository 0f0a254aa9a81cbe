"""Clusters in one line, for tests of scheduling and of plugins.

>>> result = cluster([node("n1", cpu=3)], [gang("train", members=4, cpu=1)]).run()
>>> result.binds
{}
>>> "3/4 tasks fit" in result.why("train")
True
"""

from hekla.testing.cycle import Result, TestCluster, cluster
from hekla.testing.objects import GroupBuilder, gang, hypernode, node, pod, queue

__all__ = [
    "GroupBuilder",
    "Result",
    "TestCluster",
    "cluster",
    "gang",
    "hypernode",
    "node",
    "pod",
    "queue",
]

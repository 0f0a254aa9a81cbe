"""Clusters in a line, for tests of scheduling and of plugins.

result = cluster(nodes=[node("n1", cpu=3)], jobs=[gang("train", members=4, cpu=1)]).run()
assert {} == result.binds
assert "3/4 tasks fit" in result.why("train")
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

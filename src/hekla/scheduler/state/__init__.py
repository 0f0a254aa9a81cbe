"""The cluster as the scheduler sees it: nodes, tasks, jobs and queues, kept as arrays and indexes.

`cluster.Cluster` composes the parts. `changes` lists every way in which it changes.
"""

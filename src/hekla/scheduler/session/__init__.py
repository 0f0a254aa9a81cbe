"""One scheduling cycle: the session over a snapshot of the cluster, and its statements."""

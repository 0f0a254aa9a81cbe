"""The capacity of a cluster: nodes, what they have allocated, and which jobs wait for it."""

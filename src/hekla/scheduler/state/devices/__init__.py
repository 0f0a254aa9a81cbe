"""GPUs and NPUs of nodes: inventory, pod requests and current allocations."""

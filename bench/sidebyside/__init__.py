"""Comparison of schedulers on a real Kubernetes; `bench.cluster` is the program."""

"""Schedulers side by side on a real Kubernetes; `bench.cluster` is the program."""

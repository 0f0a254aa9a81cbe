"""The controllers: they create and delete what jobs, queues and workloads need."""

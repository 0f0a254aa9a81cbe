"""hekla: a batch system that speaks Volcano's Kubernetes API, on any cluster and on one machine."""

__version__ = "0.1.0"

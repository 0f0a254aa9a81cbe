"""Kubernetes' own workloads, for a machine without kube-controller-manager.

These are ReplicaSet, Deployment, StatefulSet, Job, CronJob and the endpoints of services. They are
off on a real Kubernetes, which has its own controllers.
"""

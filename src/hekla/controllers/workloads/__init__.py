"""Kubernetes' own workloads, for a machine that has no kube-controller-manager.

Only what users of a batch system meet: ReplicaSet, Deployment, StatefulSet, Job, CronJob and the
endpoints of services. On a real Kubernetes its own controllers do this, and these stay off.
"""

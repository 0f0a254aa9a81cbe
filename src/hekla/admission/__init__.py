"""Admission webhooks: defaulting and validation of `hekla.api` for Kubernetes clusters."""

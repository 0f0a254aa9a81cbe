"""Defaults and rules of `hekla.api`, served as webhooks on Kubernetes."""

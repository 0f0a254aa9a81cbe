"""Kubernetes' own conformance cases against the single-machine cluster; see __main__.py."""

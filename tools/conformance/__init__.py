"""Kubernetes' conformance tests against the single-machine cluster; see __main__.py."""

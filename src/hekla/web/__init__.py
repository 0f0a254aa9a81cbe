"""HTTPS servers with limits, metrics and probes, for all components."""

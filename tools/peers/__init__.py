"""Other schedulers and Prometheus, for comparisons and tests."""

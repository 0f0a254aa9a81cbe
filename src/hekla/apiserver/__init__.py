"""The embedded API server: the Kubernetes wire protocol over SQLite."""

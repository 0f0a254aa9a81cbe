"""Real Kubernetes for tests: built from the Go module registry, started in a directory."""

"""Crash tests: power cuts for the store, kill -9 for the server. `make crash`."""

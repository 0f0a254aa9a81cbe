"""Crashes on purpose: power cuts at the store, kill -9 at the server. `make crash`."""

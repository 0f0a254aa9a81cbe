"""Measured load of nodes: sources and the collector that polls them."""

"""Queues: `state` decides, `controller` applies."""

"""Faults on purpose: a proxy that makes them, and a judge of the history they leave."""

"""Fault injection: a proxy that causes faults, and checks of the resulting history."""

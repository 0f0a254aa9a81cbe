"""Served kinds, and create, update and delete of their objects."""

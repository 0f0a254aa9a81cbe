"""Generates the schemas and CRDs that hekla.api ships; see generate.py."""

"""Generate the schemas and CRDs of hekla.api; see generate.py."""

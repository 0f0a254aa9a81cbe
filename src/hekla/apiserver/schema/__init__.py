"""Structural schemas and CEL validation rules of custom resources."""

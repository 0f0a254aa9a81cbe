"""Served kinds: structural schemas, CEL rules, versions and CustomResourceDefinitions."""

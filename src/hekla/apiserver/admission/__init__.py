"""Admission: built-in plugins, webhooks and validating admission policies."""

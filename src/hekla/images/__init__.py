"""Images of containers on this machine: their names, where they come from and their files.

This layer pulls or loads OCI images into a local store and hands out read-only layer directories.
It starts no containers and calls no API server.
"""

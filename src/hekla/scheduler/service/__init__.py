"""The running scheduler: watches in, decisions, writes to the API server."""

"""Nonsense on purpose: at the parsers, at the API, at the socket. `make fuzz`."""

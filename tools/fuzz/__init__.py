"""Fuzzing of the parsers, the API and the socket. `make fuzz`."""

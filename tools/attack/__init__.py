"""A hostile tenant against `hekla up --multi-user`: `python -m tools.attack`."""

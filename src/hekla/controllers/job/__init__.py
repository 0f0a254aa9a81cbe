"""Volcano's Jobs: `state` is the state machine, `sync` decides, `writer` applies."""

"""The job controller: see `state` for the machine and `sync` for how it is driven."""

"""The commands of `hekla` and `vcctl`. Commands import expensive modules when they run."""

"""The commands. Heavy imports live inside the command functions."""

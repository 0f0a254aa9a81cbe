"""A job's life from submission to the end, except placement."""

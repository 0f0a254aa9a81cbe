"""Create, update and delete objects of all kinds, with their strategies."""

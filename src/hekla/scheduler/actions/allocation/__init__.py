"""Steps shared by the actions that place tasks."""

"""task-topology: place roles of a job together or apart."""

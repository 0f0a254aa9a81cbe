"""The controller that records ended jobs, and what a record says."""

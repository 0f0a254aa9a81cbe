"""What plugins and actions build on: hooks, tiers, configuration, plan and verdict types."""

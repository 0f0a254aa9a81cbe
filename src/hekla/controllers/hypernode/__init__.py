"""HyperNodes: `discovery` decides, `controller` applies."""

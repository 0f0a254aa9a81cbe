"""The real Volcano: whose decisions ours are compared with. Never part of the product."""

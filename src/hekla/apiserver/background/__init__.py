"""Controllers that run inside the server: garbage collection, namespaces, usage status."""

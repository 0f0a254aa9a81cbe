"""HTTP requests to responses: verbs, subresources, discovery, OpenAPI and streams."""

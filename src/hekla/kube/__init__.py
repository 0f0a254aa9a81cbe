"""Talking to any Kubernetes API server. The only package that knows which server it talks to."""

"""Serving HTTPS with bounds: the socket under the API server, the webhooks and the dashboard."""

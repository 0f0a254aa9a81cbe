"""Authentication, RBAC authorization, service-account tokens and certificates."""

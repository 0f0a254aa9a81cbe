"""Storage of encoded objects: SQLite, the watch cache, selection and pagination."""

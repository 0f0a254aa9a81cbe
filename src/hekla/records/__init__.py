"""The history of ended jobs: a bounded file, and the requests that read it."""

"""Composition root: settings, entry points, embedded PostgreSQL and the LISTEN connection. Knows every room; no room knows it."""

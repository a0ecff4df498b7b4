"""Composition root: settings, entry points, embedded PostgreSQL, LISTEN. Knows every room; no room knows it."""

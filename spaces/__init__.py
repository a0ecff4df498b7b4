"""Spaces: the catalogue, the forge interface and its backends, permissions, portal pages."""

"""Composites that create, join, cut, move and write elements."""

"""Passes on loops and branches."""

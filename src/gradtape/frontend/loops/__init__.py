"""Loops in the abstract interpreter."""

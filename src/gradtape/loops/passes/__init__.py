"""Transformations of the loop IR."""

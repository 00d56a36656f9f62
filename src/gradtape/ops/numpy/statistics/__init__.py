"""Composites that reduce, accumulate, sort and count."""

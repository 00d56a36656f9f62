"""Captures: the values from outside that a function reads, found before it is traced, and their checks."""

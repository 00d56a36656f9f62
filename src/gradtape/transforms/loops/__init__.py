"""Loops and branches as nodes, and their derivatives."""

"""Loops and branches that are recorded as one operation each."""

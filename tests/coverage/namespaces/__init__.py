"""Typical calls of the public functions of each namespace, and the reasons for its gaps."""

"""Conversions: calls that would make numbers of traced arrays are operations on the arrays."""

"""Routines of SciPy and NumPy that kernels call through Python."""

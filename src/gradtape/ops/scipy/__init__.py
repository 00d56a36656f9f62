"""Rows and composites under SciPy's names."""

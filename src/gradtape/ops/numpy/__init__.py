"""Composites under NumPy's names."""

"""Dispatch: the rows and composites for NumPy's functions and ufuncs."""

"""NumPy code that takes the place of SciPy's compiled routines where an argument is traced."""

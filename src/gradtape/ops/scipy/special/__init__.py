"""Functions of `scipy.special`."""

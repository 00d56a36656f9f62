"""Kernels as Python modules that Numba compiles."""

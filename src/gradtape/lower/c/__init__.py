"""Kernels as C source, for programs without Python."""

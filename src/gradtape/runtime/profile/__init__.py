"""Kernels that time themselves."""
